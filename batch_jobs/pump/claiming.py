"""Who works on which item: the claim, as the claimer sees it.

A lease never proves that its holder lives, and a claim never that the last holder is dead: each
claim raises the item's fencing number, and every later write carries it. Called by the pump.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from uuid_utils.compat import uuid7

LEASED = "leased"
ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class ClaimedItem:
    """An item under lease, and all that an attempt at it needs but its text."""

    item_id: int
    lease_token: int
    state: str
    """leased (to be computed) or answered (stored by an earlier holder, its charge to come)."""
    attempts: int
    """This one included."""
    request_id: UUID
    custom_id: str | None
    line: int
    source_id: UUID | None
    source_offset: int
    source_bytes: int
    parent_id: int | None
    parts: bool
    """Whether its text is what its parts' answers make together."""
    bound_pico: int | None
    """The most it may be charged; None where its job has no budget."""
    kind: str
    endpoint: str
    job_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    job_created_at: datetime


def claim(items_max: int, lease_s: int, jobs_max: int) -> list[ClaimedItem]:
    """Lease up to `items_max` items of any tenants and jobs, in turns, for `lease_s` seconds.

    Two claimers never get the same item. Each item to be computed carries a request id that no
    attempt had before, stored with the lease. Of more than `jobs_max` jobs some are drawn by lot.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT item_id, lease_token, state, attempts, request_id, custom_id, line,"
            " source_id, source_offset, source_bytes, parent_id, parts, bound_pico, kind,"
            " endpoint, job_id, organization_id, project_id, key_id, job_created_at"
            " FROM batch_jobs_claim_items(%s, %s, %s)",
            [[uuid7() for _ in range(items_max)], lease_s, jobs_max],
        )
        return [ClaimedItem(*row) for row in cursor.fetchall()]
