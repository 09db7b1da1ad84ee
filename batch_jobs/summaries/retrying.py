"""Puts what a summarisation job has no summary of back into its queue, page by page.

What is done is kept: of a long document that failed, only the parts that have no summary and what
waits for them. Called by tending for a job that its owner has sent back to validating; killed at
any instant, the next slice goes on behind the last page.
"""

import time
from datetime import datetime

from django.conf import settings
from django.db import connections
from django.db.models.functions import Now

from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob, LeaseKeeper, job_row, locked
from batch_jobs.models import JobState
from batch_jobs.models.items import FRESH_AT
from batch_jobs.pages import any_living, by_index
from batch_jobs.standing import paused_for_key
from batch_jobs.summaries.results import ROWS_END
from batch_jobs.waking import wake_pump_later

RETRY = "retry"
"""In the cursor of a job that is retried: the item up to which that was done."""
PAGE_ITEMS = 5000

# A document that could not be read has neither a text nor parts: it would fail again. One that
# shares another's summary only waits for that one, unless that came in after the end of its own.
_PAGE = """
    WITH page AS (
        SELECT id, state, custom_id, source_id, same_as_id FROM bulk_item
         WHERE (job_id, id) > (%(job)s, %(after)s) AND (job_id, id) <= (%(job)s, %(end)s)
           AND organization_id = %(organization)s
         ORDER BY job_id, id LIMIT %(items_max)s
    ), ended AS (
        SELECT p.*, parts.total, parts.missing, o.state AS shared FROM page p
          LEFT JOIN bulk_item o ON o.id = p.same_as_id
         CROSS JOIN LATERAL (
            SELECT count(*) AS total, count(*) FILTER (WHERE c.state <> 'done') AS missing
              FROM bulk_item c WHERE c.parent_id = p.id) AS parts
         WHERE p.state IN ('failed', 'cancelled', 'expired')
           AND (p.source_id IS NOT NULL OR p.same_as_id IS NOT NULL OR parts.total > 0)
    ), revived AS (
        UPDATE bulk_item i
           SET state = CASE WHEN e.shared = 'done' THEN 'done'
                            WHEN e.same_as_id IS NOT NULL OR e.missing > 0 THEN 'waiting'
                            ELSE 'queued' END,
               parts_left = e.missing, attempts = 0, retry_at = %(fresh)s, status_code = NULL,
               error_code = NULL, error_message = NULL,
               ended_at = CASE WHEN e.shared = 'done' THEN now() END
          FROM ended e WHERE i.id = e.id
        RETURNING i.state AS now_state, e.state AS was_state, e.custom_id
    )
    SELECT (SELECT max(id) FROM page),
           count(custom_id) FILTER (WHERE was_state = 'failed'),
           count(custom_id) FILTER (WHERE now_state = 'done')
      FROM revived"""


def retry_some(job: LeasedJob, now: datetime) -> bool:
    """Takes a slice of half a minute; True when there is more to do at once.

    It ends in progress, finalizing or paused for its key. Raises LeaseLost, StepStopped.
    """
    if paused_for_key(job):
        return False
    keep, ends_at = LeaseKeeper(job), time.monotonic() + settings.BATCH_TEND_S
    while time.monotonic() < ends_at:
        keep()
        if not _retry_page(job):
            _go_on(job)
            return False
    return True


def is_retried(job: LeasedJob) -> bool:
    """Whether a validating job was read before; raises LeaseLost."""
    return RETRY in job_row(job).cursor


def _retry_page(job: LeasedJob) -> bool:
    with locked(job) as row, by_index(), connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            _PAGE,
            {
                "organization": job.organization_id,
                "job": job.job_id,
                "after": row.cursor[RETRY],
                "end": ROWS_END,
                "items_max": PAGE_ITEMS,
                "fresh": FRESH_AT,
            },
        )
        last, no_longer_failed, done = cursor.fetchone()
        if last is None:
            return False
        row.cursor = {RETRY: last}
        row.items_failed -= no_longer_failed
        row.items_completed += done
        row.save(update_fields=["cursor", "items_failed", "items_completed"])
    return True


def _go_on(job: LeasedJob) -> None:
    with locked(job) as row:
        some_live = any_living(job.organization_id, job.job_id, HOUSEKEEPER_ALIAS)
        row.cursor = {}
        row.state = JobState.IN_PROGRESS if some_live else JobState.FINALIZING
        if not some_live:
            row.finalizing_at = Now()
        row.save(update_fields=["cursor", "state", "finalizing_at"])
        wake_pump_later(HOUSEKEEPER_ALIAS)
