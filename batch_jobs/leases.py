"""Who works on which item: claiming, renewing and forfeiting leases.

A lease never proves that its holder lives, and a claim never that the last holder is dead: each
claim raises the item's fencing number, and every later write carries it. Called by the pump and,
for finishes that lost their worker, by the facade.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from batch_jobs.models import SummaryItem
from tenants.facade import tenant_scope


@dataclass(frozen=True, slots=True)
class ClaimedItem:
    """An item under lease, and all that an attempt at it needs."""

    item_id: int
    lease_token: int
    state: str
    """leased (to be computed) or answered (stored by an earlier holder, its charge to come)."""
    attempts: int
    request_id: UUID
    document: str
    job_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    model: str
    job_created_at: datetime


def claim(items_max: int, lease_s: int) -> list[ClaimedItem]:
    """Lease up to `items_max` items of any tenants, in turns, for `lease_s` seconds each.

    Two claimers never get the same item. Each item to be computed carries a request id that no
    attempt had before, stored with the lease.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT item_id, lease_token, state, attempts, request_id, document, job_id,"
            " organization_id, project_id, key_id, model, job_created_at"
            " FROM batch_jobs_claim(%s, %s)",
            [[uuid7() for _ in range(items_max)], lease_s],
        )
        return [ClaimedItem(*row) for row in cursor.fetchall()]


def renew(items: Collection[ClaimedItem], lease_s: int) -> None:
    """Let the leases that are still held run for `lease_s` more seconds."""
    by_organization: dict[UUID, list[ClaimedItem]] = {}
    for item in items:
        by_organization.setdefault(item.organization_id, []).append(item)
    for organization_id, own in by_organization.items():
        with tenant_scope(organization_id):
            for item in sorted(own, key=lambda item: item.item_id):
                SummaryItem.objects.filter(
                    id=item.item_id,
                    lease_token=item.lease_token,
                    state__in=[SummaryItem.State.LEASED, SummaryItem.State.ANSWERED],
                ).update(lease_expires_at=Now() + timedelta(seconds=lease_s))


def forfeit(request_ids: Collection[UUID]) -> frozenset[UUID]:
    """Those of `request_ids` whose answers were never stored, so that nothing may be charged.

    Their items go back to the queue, and an answer that comes after all is refused. Ids that are
    no attempts of ours are not returned.
    """
    if not request_ids:
        return frozenset()
    with connection.cursor() as cursor:
        cursor.execute("SELECT batch_jobs_forfeit(%s)", [list(request_ids)])
        return frozenset(row[0] for row in cursor.fetchall())
