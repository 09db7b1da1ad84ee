"""How a job reads on a page: its name, its state, how far it has come, what it costs so far.

Pure: the list, the page of one job and what both show live say it by these words alone. What is not
known is a dash.
"""

from typing import NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString

from batch_jobs.contracts import BulkJobInfo, JobView
from headrace.console_kit import formats
from headrace.console_kit.templatetags.kit import badge

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
NAME_FIELD = "name"
"""Of a job's metadata: what its owner calls it."""
STATES = {
    "validating": ("reading", "blue"),
    "ready": ("ready", "yellow"),
    "previewing": ("previewing", "blue"),
    "in_progress": ("running", "blue"),
    "paused": ("paused", "yellow"),
    "cancelling": ("cancelling", "yellow"),
    "finalizing": ("finishing", "blue"),
    "completed": ("completed", "green"),
    "failed": ("failed", "red"),
    "expired": ("expired", "red"),
    "cancelled": ("cancelled", "gray"),
}
PAUSE_REASONS = {
    "owner": "Somebody paused it.",
    "budget": "Its budget is used up. With a higher budget it goes on.",
    "key": "Its API key or project may not go on. Resumed here it goes on by the console's key.",
}
PAUSED_FOR_MONEY = "The balance or a limit does not let it go on. Resume it when there is room."


class Cells(NamedTuple):
    """What changes of a job while somebody looks at a list; each has an id of its own."""

    state: SafeString
    progress: SafeString
    speed: SafeString
    charge: SafeString
    remaining: SafeString


def prefixed_id(job: BulkJobInfo) -> str:
    """The id as the API spells it."""
    return f"{job.kind}_{job.job_id.hex}"


def noun(job: BulkJobInfo) -> str:
    """What a job is made of."""
    return "documents" if job.kind == "summary" else "lines"


def name_of(job: BulkJobInfo) -> str:
    """What its owner calls it, else what tells it from others."""
    given = job.metadata.get(NAME_FIELD, "").strip()
    kind = "Summaries" if job.kind == "summary" else "Batch"
    return given or f"{kind} {job.job_id.hex[-8:]}"


def shown_state(view: JobView) -> str:
    """The state, and `previewing` where only a few documents run."""
    is_preview = view.summary is not None and view.summary.previewing
    return "previewing" if is_preview else view.job.state


def state_badge(view: JobView) -> SafeString:
    """A word and its colour."""
    return badge(*STATES[shown_state(view)])


def pause_text(job: BulkJobInfo) -> str:
    """Why a paused job stands still; empty for one that is not paused."""
    if job.state != "paused":
        return ""
    return PAUSE_REASONS.get(job.pause_reason, PAUSED_FOR_MONEY)


def progress_bar(job: BulkJobInfo) -> SafeString:
    """`480 of 500, 3 failed` under a bar; before everything is read nothing is known."""
    if not job.items_total:
        return format_html("{}", formats.UNKNOWN)
    failed: object = ""
    if job.items_failed:
        failed = format_html(", {} failed", formats.count(job.items_failed))
    return format_html(
        '<progress class="progress progress-sm" max="{}" value="{}" aria-label="Progress">'
        '</progress><span class="progress-words">{} of {}{}</span>',
        job.items_total,
        job.items_completed + job.items_failed,
        formats.count(job.items_completed),
        formats.count(job.items_total),
        failed,
    )


class Speed(NamedTuple):
    """`12.3` of `documents/s`, or a minute."""

    number: str
    unit: str

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".strip()


def speed(view: JobView) -> Speed:
    """Over the last minute."""
    per_s = view.progress.documents_per_s
    if not per_s:
        return Speed(formats.UNKNOWN, "")
    number, unit = (per_s, "s") if per_s >= 1 else (per_s * 60, "min")
    return Speed(f"{number:.3g}", f"{noun(view.job)}/{unit}")


def remaining_text(view: JobView) -> str:
    """`3 min 20 s`."""
    remaining_s = view.progress.remaining_s
    return formats.UNKNOWN if remaining_s is None else formats.duration_text(remaining_s * 1000)


def cells(view: JobView, currency: str) -> Cells:
    """What a list shows of a job and replaces while it runs."""
    job = view.job

    def part(name: str, content: object) -> SafeString:
        return format_html('<span id="{}">{}</span>', f"job-{name}-{job.job_id}", content)

    return Cells(
        state=format_html(
            '<span id="job-state-{}" data-job-state="{}">{}</span>',
            job.job_id,
            shown_state(view),
            state_badge(view),
        ),
        progress=part("progress", progress_bar(job)),
        speed=part("speed", str(speed(view))),
        charge=part("charge", formats.money(job.charge_pico, currency)),
        remaining=part("remaining", remaining_text(view)),
    )
