"""The end of a summarisation job, and the end of its results.

Called by tending. A job's totals stay for ever; staged texts that no retry would need go with the
job's end, its documents' rows and the other texts when their owner deletes them, or when they were
kept for long enough.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connections, transaction
from django.db.models.functions import Now

from batch_jobs.events import tell
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob, job_row, locked
from batch_jobs.models import BulkJob, JobState
from batch_jobs.pages import by_index
from batch_jobs.summaries import staging
from batch_jobs.summaries.results import ROWS_END
from batch_jobs.summaries.steering import FORGET

PAGE_ITEMS = 5000
_OLD = """
    UPDATE bulk_job SET results_deleted_at = now(), cursor = %(forget)s
     WHERE id IN (
        SELECT id FROM bulk_job
         WHERE kind = 'summary' AND results_deleted_at IS NULL
           AND state IN ('completed', 'failed', 'expired', 'cancelled')
           AND greatest(completed_at, failed_at, expired_at, cancelled_at) <= %(before)s
         ORDER BY id LIMIT %(jobs_max)s FOR NO KEY UPDATE SKIP LOCKED)"""
_DELETE_PAGE = """
    WITH page AS (
        SELECT id FROM bulk_item
         WHERE (job_id, id) > (%(job)s, 0) AND (job_id, id) <= (%(job)s, %(end)s)
           AND organization_id = %(organization)s
         ORDER BY job_id, id LIMIT %(items_max)s
    ), attempts AS (
        DELETE FROM bulk_attempt WHERE item_id IN (SELECT id FROM page)
    )
    DELETE FROM bulk_item WHERE id IN (SELECT id FROM page)"""


def finish(job: LeasedJob, now: datetime) -> None:
    """Closes a finalizing job as what it was to become, and tells its owner. Raises LeaseLost."""
    # Before that: once it is closed it can be retried, and then it needs what is kept here.
    _discard_texts(job)
    with locked(job, JobState.FINALIZING) as row:
        if row.cancelling_at is not None:
            row.state, row.cancelled_at = JobState.CANCELLED, Now()
        elif row.expired_at is not None:
            row.state = JobState.EXPIRED
        else:
            row.state, row.completed_at = JobState.COMPLETED, Now()
        row.cursor = {}
        row.save(update_fields=["state", "cancelled_at", "completed_at", "cursor"])
        tell(row, row.state, now)


def forget_results(now: datetime) -> bool:
    """Deletes a page of results that nobody may read any more; True when there is more."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            _OLD,
            {
                "forget": '{"forget": true}',
                "before": now - timedelta(days=settings.SUMMARY_RESULTS_KEPT_DAYS),
                "jobs_max": settings.SUMMARY_WATCHED_MAX,
            },
        )
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        row = (
            BulkJob.objects.using(HOUSEKEEPER_ALIAS)
            .filter(cursor__contains={FORGET: True})
            .order_by("id")
            .select_for_update(no_key=True, skip_locked=True)
            .first()
        )
        if row is None:
            return False
        if _delete_page(row) < PAGE_ITEMS:
            # Shards are a job's own: none of its items may be computed any more.
            staging.discard_shards(row.organization_id, row.id)
            row.cursor = {}
            row.save(update_fields=["cursor"])
    return True


def _discard_texts(job: LeasedJob) -> None:
    row = job_row(job)
    can_be_retried = row.in_progress_at is not None and row.items_completed < row.items_total
    needed = staging.needed_shards(job) if can_be_retried else ()
    staging.discard_shards(job.organization_id, job.job_id, needed)


def _delete_page(row: BulkJob) -> int:
    with by_index(), connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            _DELETE_PAGE,
            {
                "organization": row.organization_id,
                "job": row.id,
                "end": ROWS_END,
                "items_max": PAGE_ITEMS,
            },
        )
        deleted: int = cursor.rowcount
    return deleted
