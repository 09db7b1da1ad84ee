"""The rows of batches that ended long ago: their files have it all, so they go.

Called by the sweep, a page at a time; killed at any instant, the next one goes on.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now

from batch_jobs.job_leases import HOUSEKEEPER_ALIAS
from batch_jobs.models import BulkJob, JobKind
from batch_jobs.pages import by_index

PAGE_ITEMS = 5000
FORGETTING = "forgetting"
"""In a job's cursor: some of its items are gone, and the others are to follow."""
_DELETE_PAGE = """
    WITH page AS (
        SELECT id FROM bulk_item WHERE organization_id = %(organization)s AND job_id = %(job)s
         ORDER BY id LIMIT %(items_max)s
    ), attempts AS (
        DELETE FROM bulk_attempt WHERE item_id IN (SELECT id FROM page)
    )
    DELETE FROM bulk_item WHERE id IN (SELECT id FROM page)"""


def forget_lines(now: datetime) -> bool:
    """Deletes a page of the items of an old batch; True when there is more."""
    before = now - timedelta(days=settings.BATCH_ITEMS_KEPT_DAYS)
    ended = Q()
    for name in ("completed_at", "failed_at", "cancelled_at"):
        ended |= Q(**{f"{name}__lte": before})
    ended |= Q(state="expired", expired_at__lte=before)
    is_due = Q(results_deleted_at=None) | Q(cursor__contains={FORGETTING: True})
    with by_index():
        row = (
            BulkJob.objects.using(HOUSEKEEPER_ALIAS)
            .filter(ended, is_due, kind=JobKind.BATCH)
            .order_by("id")
            .select_for_update(no_key=True, skip_locked=True)
            .first()
        )
        if row is None:
            return False
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute(
                _DELETE_PAGE,
                {"organization": row.organization_id, "job": row.id, "items_max": PAGE_ITEMS},
            )
            # With the first page: from then on its totals are those of items that are not there.
            row.results_deleted_at = row.results_deleted_at or Now()
            row.cursor = {FORGETTING: True} if cursor.rowcount == PAGE_ITEMS else {}
            row.save(update_fields=["results_deleted_at", "cursor"])
    return True
