"""What the owner of a summarisation job may do with it, each in one guarded UPDATE.

Of several that steer at once one wins, and the others are told in which state the job is. Items are
not touched here but for a preview's: pumps and tending act by the job's state.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from batch_jobs.caps import ENDED, check_jobs, check_tokens
from batch_jobs.contracts import JobStateWrong, Owner, SummaryInfo
from batch_jobs.models import BulkJob, JobState, SummaryPlan
from batch_jobs.pages import any_living
from batch_jobs.standing import UNREAD
from batch_jobs.summaries.jobs import (
    APP_ALIAS,
    check_budget,
    check_deadline,
    found,
    info_of,
    of_project,
)
from batch_jobs.summaries.retrying import RETRY
from batch_jobs.waking import wake_pump_later, wake_tending_later
from tenants.facade import tenant_scope

PREVIEW_DOCUMENTS = 3
FORGET = "forget"
"""In the cursor of a job: its items are to be deleted."""
BY_OWNER = "owner"
BUDGET_REACHED = "budget"
UNFINISHED = [JobState.VALIDATING, JobState.READY, JobState.IN_PROGRESS, JobState.PAUSED]


@dataclass(frozen=True, slots=True)
class NewBounds:
    """What a running job may still change: fields named in `changed`, None takes one away."""

    changed: frozenset[str]
    budget_pico: int | None = None
    deadline_at: datetime | None = None


def start_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs a job that is ready, or all of one whose preview runs.

    Raises JobNotFound, JobStateWrong.
    """
    can = Q(state=JobState.READY) | Q(state=JobState.IN_PROGRESS, claims_left__isnull=False)
    with _steered(owner, job_id):
        _change(
            *(owner, job_id, "started", can),
            state=JobState.IN_PROGRESS,
            in_progress_at=Coalesce("in_progress_at", Now()),
            claims_left=None,
            retry_at=Now(),
        )
        wake_pump_later(APP_ALIAS)
        return _info(owner, job_id)


def preview_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs three documents of a job that is ready; tending makes it ready again after them.

    Raises JobNotFound, JobStateWrong, also where no document is short enough to be computed whole.
    """
    with _steered(owner, job_id):
        _change(
            *(owner, job_id, "previewed", Q(state=JobState.READY)),
            state=JobState.IN_PROGRESS,
            retry_at=Now(),
        )
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute("SELECT batch_jobs_preview(%s, %s)", [job_id, PREVIEW_DOCUMENTS])
            documents: int = cursor.fetchone()[0]
        if not documents:
            raise JobStateWrong("None of this job's documents is short enough for a preview.")
        of_project(owner).filter(id=job_id).update(claims_left=documents)
        wake_pump_later(APP_ALIAS)
        return _info(owner, job_id)


def pause_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Has no more of its documents claimed; those being computed end.

    Raises JobNotFound, JobStateWrong.
    """
    with _steered(owner, job_id):
        _change(
            *(owner, job_id, "paused", Q(state=JobState.IN_PROGRESS)),
            state=JobState.PAUSED,
            pause_reason=BY_OWNER,
            paused_at=Now(),
        )
        return _info(owner, job_id)


def resume_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Goes on with a paused job; raises JobNotFound, JobStateWrong, also when its budget is used
    up."""
    with _steered(owner, job_id) as row:
        if row.state == JobState.PAUSED and not _is_below_budget(row):
            raise JobStateWrong("This job's budget is used up; raise it with PATCH.")
        # On behalf of who resumes it: the key that made it may be what it was paused for.
        changes = _going_on(row) | {"key_id": owner.key_id}
        _change(*(owner, job_id, "resumed", Q(state=JobState.PAUSED)), **changes)
        _wake()
        return _info(owner, job_id)


def cancel_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Ends a job early; what is done stays and is charged. Raises JobNotFound, JobStateWrong."""
    with _steered(owner, job_id):
        _change(
            *(owner, job_id, "cancelled", Q(state__in=UNFINISHED)),
            state=JobState.CANCELLING,
            cancelling_at=Now(),
        )
        wake_tending_later(APP_ALIAS)
        return _info(owner, job_id)


def retry_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Runs again what an ended job has no summary of; what is done is kept.

    Raises JobNotFound, JobStateWrong, TooMuchEnqueued.
    """
    left = Q(items_total__gt=F("items_completed"), in_progress_at__isnull=False)
    can = Q(state__in=[JobState.COMPLETED, JobState.EXPIRED, JobState.CANCELLED]) & left
    with _steered(owner, job_id) as row:
        if row.state == JobState.COMPLETED and row.items_completed == row.items_total:
            raise JobStateWrong("Nothing of this job has failed.")
        if row.state in ENDED:
            check_jobs(owner.organization_id, APP_ALIAS)
            check_tokens(owner.organization_id, row.id, row.model, row.enqueued_tokens, APP_ALIAS)
        _change(
            *(owner, job_id, "retried", can),
            state=JobState.VALIDATING,
            key_id=owner.key_id,
            cursor={RETRY: 0},
            tended_until=None,
            claims_left=None,
            pause_reason="",
            retry_at=Now(),
            expires_at=Now() + timedelta(days=settings.SUMMARY_JOB_DAYS_MAX),
            finalizing_at=None,
            completed_at=None,
            expired_at=None,
            cancelling_at=None,
            cancelled_at=None,
        )
        wake_tending_later(APP_ALIAS)
        return _info(owner, job_id)


def change_bounds(owner: Owner, job_id: UUID, bounds: NewBounds) -> SummaryInfo:
    """Another budget or deadline for an unfinished job; a budget that leaves room again resumes a
    job that had used up its own.

    Raises InputInvalid, JobNotFound, JobStateWrong.
    """
    changes: dict[str, Any] = {name: getattr(bounds, name) for name in bounds.changed}
    check_budget(changes.get("budget_pico"))
    check_deadline(changes.get("deadline_at"), timezone.now())
    with _steered(owner, job_id) as row:
        if "budget_pico" in changes:
            row.budget_pico = bounds.budget_pico
            if row.pause_reason == BUDGET_REACHED and row.state == JobState.PAUSED:
                changes |= _going_on(row) if _is_below_budget(row) else {}
        if changes:
            _change(*(owner, job_id, "changed", Q(state__in=UNFINISHED)), **changes)
        if "deadline_at" in changes:
            SummaryPlan.objects.filter(job_id=job_id).update(warned_at=None)
        _wake()
        return _info(owner, job_id)


def delete_results(owner: Owner, job_id: UUID) -> SummaryInfo:
    """Deletes what an ended job made, for its owner at once; its totals stay.

    Raises JobNotFound, JobStateWrong.
    """
    with _steered(owner, job_id):
        _change(
            *(owner, job_id, "deleted", Q(state__in=ENDED)),
            results_deleted_at=Now(),
            cursor={FORGET: True},
        )
        wake_tending_later(APP_ALIAS)
        return _info(owner, job_id)


@contextmanager
def _steered(owner: Owner, job_id: UUID) -> Iterator[BulkJob]:
    """The scope with the job locked: whoever steers it next finds what this one has made of it.

    Raises JobNotFound, also for one whose results are deleted: there is nothing left to steer.
    """
    with tenant_scope(owner.organization_id):
        rows = of_project(owner).filter(results_deleted_at=None)
        yield found(rows.select_for_update(no_key=True), job_id)


def _change(owner: Owner, job_id: UUID, done: str, can: Q, **changes: Any) -> None:
    """The guarded UPDATE; raises JobStateWrong when the job is in no state for it."""
    if not of_project(owner).filter(can, id=job_id).update(**changes):
        state = found(of_project(owner), job_id).state
        raise JobStateWrong(f"A summarisation job with status '{state}' cannot be {done}.")


def _info(owner: Owner, job_id: UUID) -> SummaryInfo:
    return info_of(found(of_project(owner), job_id))


def _is_below_budget(row: BulkJob) -> bool:
    return row.budget_pico is None or row.charge_pico < row.budget_pico


def _going_on(row: BulkJob) -> dict[str, Any]:
    """What makes a paused job run, or be read on where it was paused before that, or end where its
    last document ended while it was paused.

    The row must be locked: whoever ends the last document locks it too.
    """
    resumed = {"pause_reason": "", "retry_at": Now(), "cursor": row.cursor.get(UNREAD, {})}
    if UNREAD in row.cursor:
        return resumed | {"state": JobState.VALIDATING}
    all_known = row.items_total == row.items_completed + row.items_failed
    # Parts may still run of documents that have failed. The rows are only asked where it matters.
    if all_known and not any_living(row.organization_id, row.id, APP_ALIAS):
        return resumed | {"state": JobState.FINALIZING, "finalizing_at": Now()}
    return resumed | {"state": JobState.IN_PROGRESS}


def _wake() -> None:
    wake_pump_later(APP_ALIAS)
    wake_tending_later(APP_ALIAS)
