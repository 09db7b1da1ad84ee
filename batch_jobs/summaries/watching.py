"""What unfinished summarisation jobs need beside their pump: the end of a preview, and telling.

Called by tending at the start of each round, for all jobs at once; each takes its own transaction,
and does nothing twice however many workers tend.
"""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from batch_jobs.events import tell
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS
from batch_jobs.models import BulkJob, JobKind, JobState, ProgressSample
from batch_jobs.models import SummaryPlan as Plan
from batch_jobs.pages import any_under_way
from batch_jobs.summaries.jobs import course_of, sample_of
from batch_jobs.summaries.progress import is_at_risk, progress_of, window_start
from batch_jobs.summaries.steering import BY_OWNER, UNFINISHED

TOLD = "told_paused"
"""In the cursor of a paused job: its owner knows. Resuming it empties the cursor."""


def watch(now: datetime) -> None:
    """Ends previews whose documents have ended; tells of jobs that were paused, but not by their
    owner, and of deadlines that are at risk."""
    for job_id in _previewed():
        _end_preview(job_id)
    for job_id in _to_tell():
        _tell_paused(job_id, now)
    for job_id in _to_warn():
        _warn(job_id, now)


def _jobs() -> QuerySet[BulkJob]:
    return BulkJob.objects.using(HOUSEKEEPER_ALIAS).filter(kind=JobKind.SUMMARY)


def _previewed() -> list[UUID]:
    jobs = _jobs().filter(state=JobState.IN_PROGRESS, claims_left=0)
    return list(jobs.values_list("id", flat=True)[: settings.SUMMARY_WATCHED_MAX])


def _to_tell() -> list[UUID]:
    jobs = _jobs().filter(state=JobState.PAUSED).exclude(pause_reason__in=["", BY_OWNER])
    untold = jobs.exclude(cursor__has_key=TOLD)
    return list(untold.values_list("id", flat=True)[: settings.SUMMARY_WATCHED_MAX])


def _to_warn() -> list[UUID]:
    jobs = _jobs().filter(
        state__in=UNFINISHED, deadline_at__isnull=False, plan__warned_at__isnull=True
    )
    # The nearest first; those that are not at risk stay and are looked at in each round.
    return list(
        jobs.order_by("deadline_at").values_list("id", flat=True)[: settings.SUMMARY_WATCHED_MAX]
    )


def _end_preview(job_id: UUID) -> None:
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        jobs = _jobs().filter(id=job_id, state=JobState.IN_PROGRESS, claims_left=0)
        row = jobs.select_for_update(no_key=True, skip_locked=True).first()
        if row is None:
            return
        # One that is given back gives its claim back too: then there are claims left again.
        if not any_under_way(row.organization_id, row.id, HOUSEKEEPER_ALIAS):
            row.state, row.claims_left = JobState.READY, None
            row.save(update_fields=["state", "claims_left"])


def _tell_paused(job_id: UUID, now: datetime) -> None:
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        jobs = _jobs().filter(id=job_id, state=JobState.PAUSED).exclude(cursor__has_key=TOLD)
        row = jobs.select_for_update(no_key=True, skip_locked=True).first()
        if row is None:
            return
        row.cursor |= {TOLD: True}
        row.save(update_fields=["cursor"])
        tell(row, "paused", now)


def _warn(job_id: UUID, now: datetime) -> None:
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        plans = Plan.objects.using(HOUSEKEEPER_ALIAS).filter(job_id=job_id, warned_at=None)
        row = _jobs().filter(id=job_id, state__in=UNFINISHED).first()
        plan = plans.first()
        if row is None or plan is None or row.deadline_at is None:
            return
        samples = ProgressSample.objects.using(HOUSEKEEPER_ALIAS).filter(
            organization_id=row.organization_id, job_id=row.id, bucket_at__gte=window_start(now)
        )
        progress = progress_of(course_of(row, plan), [sample_of(one) for one in samples], now)
        if is_at_risk(progress, row.deadline_at, now) and plans.update(warned_at=now):
            tell(row, "deadline_at_risk", now)
