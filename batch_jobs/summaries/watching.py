"""What running summarisation jobs need beside their pump: the end of a preview, and a warning.

Called by tending at the start of each round, for all jobs at once; each takes its own transaction,
and does nothing twice however many workers tend.
"""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connections, transaction
from django.db.models import QuerySet

from batch_jobs.events import tell
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS
from batch_jobs.models import BulkItem, BulkJob, ItemState, JobKind, JobState, ProgressSample
from batch_jobs.models import SummaryPlan as Plan
from batch_jobs.summaries.jobs import course_of, sample_of
from batch_jobs.summaries.progress import is_at_risk, progress_of, window_start
from batch_jobs.summaries.steering import LIVING_ITEMS, PREVIEW, UNFINISHED
from batch_jobs.waking import wake_pump_later

_TO_THE_FRONT = """
    UPDATE bulk_item SET retry_at = '1999-01-01 00:00:00+00'
     WHERE organization_id = %s AND job_id = %s AND id = ANY (%s) AND state = 'queued'
       AND retry_at <= %s"""


def watch(now: datetime) -> None:
    """Ends previews whose documents have ended, and warns of deadlines that are at risk."""
    for job_id in _previewed():
        _end_preview(job_id, now)
    for job_id in _to_warn():
        _warn(job_id, now)


def _jobs() -> QuerySet[BulkJob]:
    return BulkJob.objects.using(HOUSEKEEPER_ALIAS).filter(kind=JobKind.SUMMARY)


def _previewed() -> list[UUID]:
    jobs = _jobs().filter(state=JobState.IN_PROGRESS, claims_left=0)
    return list(jobs.values_list("id", flat=True)[: settings.SUMMARY_WATCHED_MAX])


def _to_warn() -> list[UUID]:
    jobs = _jobs().filter(
        state__in=UNFINISHED, deadline_at__isnull=False, plan__warned_at__isnull=True
    )
    # The nearest first; those that are not at risk stay and are looked at in each round.
    return list(
        jobs.order_by("deadline_at").values_list("id", flat=True)[: settings.SUMMARY_WATCHED_MAX]
    )


def _end_preview(job_id: UUID, now: datetime) -> None:
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        jobs = _jobs().filter(id=job_id, state=JobState.IN_PROGRESS, claims_left=0)
        row = jobs.select_for_update(no_key=True, skip_locked=True).first()
        if row is None:
            return
        items = row.cursor.get(PREVIEW, [])
        living = BulkItem.objects.using(HOUSEKEEPER_ALIAS).filter(
            organization_id=row.organization_id, job_id=row.id, id__in=items, state__in=LIVING_ITEMS
        )
        states = set(living.values_list("state", flat=True))
        if not states:
            row.state, row.claims_left, row.cursor = JobState.READY, None, {}
            row.save(update_fields=["state", "claims_left", "cursor"])
        elif states == {ItemState.QUEUED}:
            # Taken and given back: nobody could compute them. They are claimed once more.
            with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
                cursor.execute(_TO_THE_FRONT, [row.organization_id, row.id, items, now])
                row.claims_left = cursor.rowcount
            row.save(update_fields=["claims_left"])
            wake_pump_later(HOUSEKEEPER_ALIAS)


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
