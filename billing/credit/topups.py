"""Top-ups: money a tenant pays in, from the wish to the credit, and back.

A top-up is a row that waits for a payment; only the provider's word completes it, once. Never
talks to a provider itself: `PaymentProvider` is the port, filled at start by whoever does. Called
by the views (app) and by the provider's messages (housekeeper).
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from django.db import IntegrityError, connections, models
from uuid_utils.compat import uuid7

from billing.contracts import (
    PICO,
    StartedTopUp,
    TopUp,
    TopUpConflict,
    TopUpNotFound,
    TopUpState,
    TopUpUnavailable,
)
from billing.credit.refusals import move_money
from billing.ledger import balance
from billing.models import TopUpRow
from billing.pricing import coin_pico
from tenants.contracts import Actor, Permission
from tenants.facade import record_audit, tenant_scope

KEY_CHARS_MAX = 255
CENT_PICO = PICO // 100
TOP_UP_MIN_PICO = PICO
TOP_UP_MAX_PICO = 1_000_000 * PICO


class PaymentProvider(Protocol):
    """What completes top-ups. Each call is safe to repeat: the top-up's id is its key there."""

    def begin(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """Open a payment that a person completes; says where."""

    def resume(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """Where a payment that was begun can still be completed; no address where it cannot."""

    def charge(self, top_up: TopUp) -> None:
        """Take a recharge from the payment method on file; the outcome comes as a message."""


@dataclass(slots=True)
class _Port:
    provider: PaymentProvider | None = None


_port = _Port()


def use_payment_provider(provider: PaymentProvider | None) -> None:
    """Fill the port; without one no top-up can be begun."""
    _port.provider = provider


def payment_provider() -> PaymentProvider:
    """Raises TopUpUnavailable when there is none."""
    if _port.provider is None:
        raise TopUpUnavailable("no payment provider is set up here")
    return _port.provider


def begin_topup(
    actor: Actor, amount_pico: int, idempotency_key: str, return_url: str = ""
) -> StartedTopUp:
    """Begin to pay in; the same key answers the same top-up.

    Raises ValueError for an amount out of bounds, not of whole cents or not of whole coins of the
    currency, TopUpConflict when the key was used for another amount, TopUpUnavailable without a
    provider.
    """
    actor.require(Permission.BILLING_WRITE)
    if not TOP_UP_MIN_PICO <= amount_pico <= TOP_UP_MAX_PICO or amount_pico % CENT_PICO:
        raise ValueError(
            f"a top-up is {TOP_UP_MIN_PICO // PICO} to {TOP_UP_MAX_PICO // PICO}, in whole cents"
        )
    if not 1 <= len(idempotency_key) <= KEY_CHARS_MAX:
        raise ValueError(f"the idempotency key must have 1 to {KEY_CHARS_MAX} characters")
    provider = payment_provider()
    currency = balance(actor.organization_id).currency
    if amount_pico % coin_pico(currency):
        raise ValueError(f"{currency} has no coin for that amount")
    with tenant_scope(actor.organization_id):
        top_up_id = uuid7()
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "INSERT INTO billing_top_up"
                " (id, organization_id, amount_pico, currency, idempotency_key)"
                " VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (organization_id, idempotency_key) DO NOTHING",
                [top_up_id, actor.organization_id, amount_pico, currency, idempotency_key],
            )
            is_new = cursor.rowcount == 1
        row = TopUpRow.objects.get(
            organization_id=actor.organization_id, idempotency_key=idempotency_key
        )
        if row.amount_pico != amount_pico:
            raise TopUpConflict("the key was used for another top-up")
        if is_new:
            record_audit(
                actor, "topup.begun", "top_up", str(row.id), {"amount_pico": str(amount_pico)}
            )
    return provider.begin(_shown(row), return_url)


def continue_topup(actor: Actor, top_up_id: UUID, return_url: str = "") -> StartedTopUp:
    """Where a pending top-up is paid, as it was begun; no address where there is nothing to pay.

    Raises TopUpNotFound, and TopUpUnavailable without a provider.
    """
    actor.require(Permission.BILLING_WRITE)
    found = top_up(actor.organization_id, top_up_id)
    if found.state is not TopUpState.PENDING or found.is_recharge:
        return StartedTopUp(found, "")
    return payment_provider().resume(found, return_url)


def note_payment(
    organization_id: UUID, top_up_id: UUID, payment_reference: str, using: str = "default"
) -> None:
    """Tie a provider's payment to its top-up, before anybody can pay it. Idempotent.

    Raises TopUpNotFound, or TopUpConflict when either belongs to another.
    """
    try:
        with tenant_scope(organization_id, using):
            mine = TopUpRow.objects.using(using).filter(
                organization_id=organization_id, id=top_up_id
            )
            free = models.Q(payment_reference__in=["", payment_reference])
            if mine.filter(free).update(payment_reference=payment_reference):
                return
            if not mine.exists():
                raise TopUpNotFound("no such top-up")
    except IntegrityError as error:
        raise TopUpConflict("the payment is another top-up's") from error
    raise TopUpConflict("the top-up has another payment")


def complete_topup(
    payment_reference: str,
    amount_pico: int,
    top_up_id: UUID | None = None,
    using: str = "housekeeper",
) -> bool:
    """A payment arrived: post cash to credit, once; False when that was done before.

    `top_up_id` finds the top-up of a payment that was not noted yet. Raises TopUpNotFound, or
    TopUpConflict when another sum was paid or the payment is another top-up's.
    """
    [(done,)] = move_money(
        "SELECT billing_complete_top_up(%s, %s, %s)",
        [payment_reference, top_up_id, amount_pico],
        using,
    )
    return bool(done)


def fail_topup(
    payment_reference: str,
    reason: str,
    top_up_id: UUID | None = None,
    using: str = "housekeeper",
) -> bool:
    """A payment failed; False when the top-up had been decided before. A later success still
    counts. A failed recharge holds the next one back. Raises TopUpNotFound."""
    [(done,)] = move_money(
        "SELECT billing_fail_top_up(%s, %s, %s)", [payment_reference, top_up_id, reason], using
    )
    return bool(done)


def refund_topup(
    payment_reference: str,
    amount_pico: int,
    idempotency_key: str,
    *,
    is_done: bool = False,
    top_up_id: UUID | None = None,
    using: str = "housekeeper",
) -> bool:
    """Give back part of a top-up, once per key; False when that was done before.

    Raises RefundTooLarge for more than is left of its credit. `is_done` says that the provider has
    paid it back already (a dispute, say): then the part that was spent is written off instead.
    """
    if amount_pico <= 0:
        raise ValueError("a refund must be positive")
    [(done,)] = move_money(
        "SELECT billing_refund_top_up(%s, %s, %s, %s, %s)",
        [payment_reference, top_up_id, amount_pico, idempotency_key, is_done],
        using,
    )
    return bool(done)


def top_up(organization_id: UUID, top_up_id: UUID, using: str = "default") -> TopUp:
    """One of the tenant's top-ups. Raises TopUpNotFound."""
    with tenant_scope(organization_id, using):
        row = (
            TopUpRow.objects.using(using)
            .filter(organization_id=organization_id, id=top_up_id)
            .first()
        )
    if row is None:
        raise TopUpNotFound("no such top-up")
    return _shown(row)


def top_ups(
    organization_id: UUID,
    *,
    rows_max: int = 100,
    after: UUID | None = None,
    ascending: bool = False,
    using: str = "default",
) -> list[TopUp]:
    """The tenant's top-ups, the newest first."""
    with tenant_scope(organization_id, using):
        rows = TopUpRow.objects.using(using).filter(organization_id=organization_id)
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        return [_shown(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def _shown(row: TopUpRow) -> TopUp:
    return TopUp(
        top_up_id=row.id,
        organization_id=row.organization_id,
        amount_pico=row.amount_pico,
        currency=row.currency,
        state=TopUpState(row.state),
        is_recharge=row.is_recharge,
        payment_reference=row.payment_reference,
        refunded_pico=row.refunded_pico,
        failure=row.failure,
        created_at=row.created_at,
        completed_at=row.completed_at,
    )
