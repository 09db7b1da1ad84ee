"""What may be done with a job in the state that it is in: which buttons its page has.

Pure; whether it then happens is the facade's to say. Called by the page of a job.
"""

from dataclasses import dataclass

from batch_jobs.contracts import JobView
from headrace.tenant_console.jobs.showing import ENDED

BATCH_CAN_BE_CANCELLED = frozenset({"validating", "in_progress", "paused"})
UNFINISHED = frozenset({"validating", "ready", "in_progress", "paused"})
CAN_BE_RETRIED = frozenset({"completed", "expired", "cancelled"})


@dataclass(frozen=True, slots=True)
class Possible:
    """Which buttons there are."""

    start: bool = False
    preview: bool = False
    pause: bool = False
    resume: bool = False
    cancel: bool = False
    retry: bool = False
    change: bool = False
    delete: bool = False


def possible(view: JobView) -> Possible:
    """For somebody who may write."""
    state, summary = view.job.state, view.summary
    if summary is None:
        return Possible(cancel=state in BATCH_CAN_BE_CANCELLED)
    is_there = summary.results_deleted_at is None
    job = view.job
    has_left = job.items_completed < job.items_total and job.in_progress_at is not None
    return Possible(
        start=state == "ready",
        preview=state == "ready",
        pause=state == "in_progress" and not summary.previewing,
        resume=state == "paused",
        cancel=state in UNFINISHED,
        retry=is_there and has_left and state in CAN_BE_RETRIED,
        change=state in UNFINISHED,
        delete=is_there and state in ENDED,
    )
