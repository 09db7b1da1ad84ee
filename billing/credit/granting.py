"""Credit grants: the operator gives, usage burns, time ends; and what a tenant has of them.

Never takes what an open hold reserves. Called by the operator's commands (housekeeper), by the
tending task and by the views, whose reads bring the grants up to now first.
"""

import logging
from datetime import UTC, datetime
from uuid import UUID

from django.db import DatabaseError

from billing.contracts import CreditConflict, CreditGrant, GrantCategory
from billing.credit.refusals import move_money
from billing.models import CreditGrantRow
from billing.retry import call
from tenants.facade import tenant_scope

SOURCE_CHARS_MAX = 100
PRIORITY_MAX = 1000
TEND_MAX = 500
"""Organizations one run of the task tends; the rest waits for the next."""

logger = logging.getLogger(__name__)


def grant_credit(
    organization_id: UUID,
    amount_pico: int,
    idempotency_key: str,
    *,
    category: GrantCategory = GrantCategory.PROMOTIONAL,
    priority: int = 0,
    effective_at: datetime | None = None,
    expires_at: datetime | None = None,
    operator_id: UUID | None = None,
    using: str = "housekeeper",
) -> None:
    """Give prepaid credit, once per key and tenant, and say so in the audit log.

    PAID is money the operator received some other way than by a top-up. Lower priorities are
    burned first. Raises ValueError unless the amount is positive, the key short and the span of
    time not empty or past; CreditConflict when the key was used for another grant or the
    organization has no account.
    """
    if amount_pico <= 0:
        raise ValueError("a grant must be positive")
    if not 1 <= len(idempotency_key) <= SOURCE_CHARS_MAX:
        raise ValueError(f"the idempotency key must have 1 to {SOURCE_CHARS_MAX} characters")
    if not 0 <= priority <= PRIORITY_MAX:
        raise ValueError(f"the priority must be 0 to {PRIORITY_MAX}")
    if expires_at is not None and expires_at <= max(
        effective_at or datetime.min.replace(tzinfo=UTC), datetime.now(UTC)
    ):
        raise ValueError("a grant must not end before it begins, or in the past")
    move_money(
        "SELECT billing_grant_credit(%s, %s, %s, %s, %s, %s, %s, %s)",
        [
            organization_id,
            amount_pico,
            idempotency_key,
            category.value,
            priority,
            effective_at,
            expires_at,
            operator_id,
        ],
        using,
    )


def credit_grants(
    organization_id: UUID,
    *,
    rows_max: int = 100,
    after: UUID | None = None,
    ascending: bool = False,
    using: str = "default",
) -> list[CreditGrant]:
    """The tenant's grants as of now, the newest first: usage until this moment is burned."""
    move_money("SELECT billing_tend_credit(%s)", [organization_id], using)
    with tenant_scope(organization_id, using):
        rows = CreditGrantRow.objects.using(using).filter(organization_id=organization_id)
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        return [_shown(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def tend_credit(moment: datetime | None = None, using: str = "housekeeper") -> int:
    """Bring into force and end what is due, over all tenants; returns how many were tended.

    One that cannot be tended is logged and left for the next run.
    """
    moment = moment or datetime.now(UTC)
    tended = 0
    for (organization_id,) in call(
        "SELECT * FROM billing_credit_due(%s, %s)", [moment, TEND_MAX], using
    ):
        try:
            tend_credit_of(organization_id, moment, using)
        except (DatabaseError, CreditConflict):
            logger.exception("credit of organization %s cannot be tended", organization_id)
        else:
            tended += 1
    return tended


def tend_credit_of(organization_id: UUID, moment: datetime, using: str = "housekeeper") -> None:
    """Bring one tenant's grants up to this moment. Raises CreditConflict without an account."""
    move_money("SELECT billing_tend_credit(%s, %s)", [organization_id, moment], using)


def _shown(row: CreditGrantRow) -> CreditGrant:
    return CreditGrant(
        grant_id=row.id,
        source=row.source,
        category=GrantCategory(row.category),
        priority=row.priority,
        amount_pico=row.amount_pico,
        remaining_pico=row.remaining_pico,
        effective_at=row.effective_at,
        expires_at=row.expires_at,
        posted_at=row.posted_at,
        created_at=row.created_at,
    )
