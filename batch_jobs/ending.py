"""The ends that a job's owner or its time brings: what was not computed is cancelled or expired.

What is being computed may end by itself for a while; its answer is then kept and charged. After
that, or when its worker is dead, the item is taken away, and a late answer costs nothing. Knows
nothing of what a job is for. Called by tending, a few pages of items at a time.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.db.models.functions import Now

from batch_jobs.job_leases import (
    HOUSEKEEPER_ALIAS,
    LeasedJob,
    LeaseKeeper,
    job_row,
    locked,
)
from batch_jobs.models import BulkJob, JobState
from batch_jobs.pages import by_index

PAGE_ITEMS = 5000
CURSOR = "ended_to"
"""In a job's cursor: the item up to which waiting and queued ones were ended."""

# Items are locked by ascending id, as the pump does.
_END = """
        UPDATE bulk_item SET state = %(end)s, ended_at = now(), error_code = %(code)s,
               error_message = %(message)s, lease_expires_at = NULL
         WHERE id IN (SELECT id FROM living)"""
_END_PAGE = f"""
    WITH page AS (
        SELECT id, state FROM bulk_item
         WHERE organization_id = %(organization)s AND job_id = %(job)s AND id > %(after)s
         ORDER BY id LIMIT %(items_max)s
    ), living AS (
        SELECT id FROM bulk_item
         WHERE id IN (SELECT id FROM page WHERE state IN ('waiting', 'queued'))
           AND state IN ('waiting', 'queued')
         ORDER BY id FOR NO KEY UPDATE
    ), ended AS ({_END})
    SELECT max(id) FROM page"""  # noqa: S608 - our own text
_END_QUEUED = f"""
    WITH living AS (
        SELECT id FROM bulk_item
         WHERE organization_id = %(organization)s AND job_id = %(job)s AND state = 'queued'
         ORDER BY id FOR NO KEY UPDATE
    ){_END}"""  # noqa: S608 - our own text
# Those whose worker is dead, and after a while all that still run: whoever has one finds it gone,
# and settles its request at zero.
_END_LEASED = f"""
    WITH living AS (
        SELECT id FROM bulk_item
         WHERE organization_id = %(organization)s AND job_id = %(job)s AND state = 'leased'
           AND lease_expires_at <= CASE WHEN %(at_once)s THEN 'infinity' ELSE now() END
         ORDER BY id FOR NO KEY UPDATE
    ){_END}"""  # noqa: S608 - our own text
_ANY_RUNNING = """
    SELECT EXISTS (SELECT FROM bulk_item
                    WHERE organization_id = %(organization)s AND job_id = %(job)s
                      AND state IN ('leased', 'answered') AND lease_expires_at > '-infinity')"""


@dataclass(frozen=True, slots=True)
class _End:
    state: str
    code: str
    message: str
    since: datetime


def is_ending(row: BulkJob) -> bool:
    """Whether the job was cancelled or expired: it may still have items that are not ended."""
    return row.cancelling_at is not None or row.expired_at is not None


def expire(job: LeasedJob, now: datetime) -> bool:
    """Ends the time of a job; what it has is finalized."""
    with locked(job) as row:
        row.state = JobState.FINALIZING
        row.expired_at = row.finalizing_at = Now()
        row.cursor = {}
        row.save(update_fields=["state", "expired_at", "finalizing_at", "cursor"])
    return True


def cancel(job: LeasedJob, now: datetime) -> bool:
    """Ends items of a cancelled job; when none is left, it is finalized."""
    if not end_items(job, now):
        return False
    with locked(job) as row:
        row.state = JobState.FINALIZING
        row.finalizing_at = Now()
        row.save(update_fields=["state", "finalizing_at"])
    return True


def end_items(job: LeasedJob, now: datetime) -> bool:
    """Ends what was not computed; True when every item has ended.

    False while some still run, or when there are so many that the next step has to go on.
    """
    row, keep = job_row(job), LeaseKeeper(job)
    ends_at = time.monotonic() + settings.BATCH_TEND_S
    end = _end_of(row)
    values: dict[str, Any] = {
        "organization": job.organization_id,
        "job": job.job_id,
        "end": end.state,
        "code": end.code,
        "message": end.message,
        "items_max": PAGE_ITEMS,
        "at_once": now - end.since >= timedelta(seconds=settings.BATCH_END_GRACE_S),
    }
    after = row.cursor.get(CURSOR, 0)
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        while (last := _end_page(cursor, {**values, "after": after})) is not None:
            after = last
            _remember(job, after)
            keep()
            if time.monotonic() > ends_at:
                return False
        cursor.execute(_END_LEASED, values)
        cursor.execute(_ANY_RUNNING, values)
        some_run: bool = cursor.fetchone()[0]
        # After that: what a worker gave back meanwhile is not in the pages any more.
        cursor.execute(_END_QUEUED, values)
    return not some_run


def _end_page(cursor: CursorWrapper, values: dict[str, Any]) -> int | None:
    """The last item of the page; None when there was none."""
    with by_index():
        cursor.execute(_END_PAGE, values)
        last: int | None = cursor.fetchone()[0]
    return last


def _remember(job: LeasedJob, after: int) -> None:
    with locked(job) as row:
        row.cursor = {CURSOR: after}
        row.save(update_fields=["cursor"])


def _end_of(row: BulkJob) -> _End:
    if row.cancelling_at is not None:
        return _End(
            "cancelled",
            f"{row.kind}_cancelled",
            f"This request was not executed before the {row.kind} was cancelled.",
            row.cancelling_at,
        )
    assert row.expired_at is not None, "a job's items are ended when it was cancelled or expired"
    return _End(
        "expired",
        f"{row.kind}_expired",
        f"This request could not be executed before the {row.kind} expired.",
        row.expired_at,
    )
