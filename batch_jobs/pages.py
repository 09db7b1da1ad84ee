"""Asking for a job's items in ways that stay cheap with millions of them, each by an index.

What a job has just loaded or ended is not in the planner's statistics yet. It would then sort all
that is left of the job for each page: 60 s instead of 10 s for 200,000 items. Called by whoever
goes through the items of a job.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connections, transaction

from batch_jobs.job_leases import HOUSEKEEPER_ALIAS

# The order is the partial index's, and so names it.
_ANY_QUEUED = """
    SELECT true FROM bulk_item
     WHERE organization_id = %(organization)s AND job_id = %(job)s AND state = 'queued'
     ORDER BY job_id, retry_at, place, id LIMIT 1"""
_ANY_UNDER_WAY = """
    SELECT true FROM bulk_item
     WHERE organization_id = %(organization)s AND job_id = %(job)s
       AND state IN ('leased', 'answered') AND lease_expires_at > '-infinity'
     ORDER BY lease_expires_at LIMIT 1"""


@contextmanager
def by_index(using: str = HOUSEKEEPER_ALIAS) -> Iterator[None]:
    """A transaction in which a page is read in the order of an index, and never sorted."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        yield


def any_living(organization_id: UUID, job_id: UUID, using: str) -> bool:
    """Whether any of a job's items is still to come to its end; one that waits, waits for such."""
    return any(
        _is_any(query, organization_id, job_id, using) for query in (_ANY_QUEUED, _ANY_UNDER_WAY)
    )


def any_under_way(organization_id: UUID, job_id: UUID, using: str) -> bool:
    """Whether workers have any of a job's items."""
    return _is_any(_ANY_UNDER_WAY, organization_id, job_id, using)


def _is_any(query: str, organization_id: UUID, job_id: UUID, using: str) -> bool:
    with by_index(using), connections[using].cursor() as cursor:
        cursor.execute(query, {"organization": organization_id, "job": job_id})
        return cursor.fetchone() is not None
