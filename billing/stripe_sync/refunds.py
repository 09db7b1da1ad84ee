"""Giving money back by Stripe: the books first, then Stripe, as often as it takes.

The books' refunds are the outbox: what they say was given back of a payment, less what Stripe says,
is still to be sent. So nothing is lost between the two, and a refund begun in Stripe is never sent
again. Called by the operator's command and by a task, as the housekeeper.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import stripe

from billing.credit.topups import refund_topup, top_up
from billing.retry import call
from billing.stripe_sync.amounts import minor_units, pico_of
from billing.stripe_sync.client import stripe_client

HOUSEKEEPER = "housekeeper"
WATCHED = timedelta(hours=1)
"""How long a refund of the books is held against Stripe's on each run; once a day, REACH."""
REACH = timedelta(days=7)
REPORTED = timedelta(days=90)
"""How long one that Stripe has not taken within REACH is reported, for somebody to look at."""
REFUNDS_MAX = 200
MADE = """
    SELECT DISTINCT t.organization_id, t.id
      FROM billing_ledger_tx x
      JOIN billing_credit_grant g
        ON g.organization_id = x.organization_id AND g.ledger_tx_id = x.reverses
      JOIN billing_top_up t
        ON t.organization_id = g.organization_id AND g.source = 'top_up:' || t.id
     WHERE x.kind = 'refund' AND x.created_at >= %s AND x.created_at < %s
     LIMIT %s"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnsentRefund:
    """What the books gave back of a top-up and Stripe did not."""

    organization_id: UUID
    top_up_id: UUID
    amount_pico: int
    currency: str


def refund(
    organization_id: UUID,
    top_up_id: UUID,
    amount_pico: int,
    reference: str,
    using: str = HOUSEKEEPER,
) -> None:
    """Give back part of a top-up, once per reference; again with the same one finishes it.

    Raises RefundTooLarge for more than is left of its credit, TopUpNotFound, TopUpConflict,
    ValueError for an amount that its currency has no coin for.
    """
    paid = top_up(organization_id, top_up_id, using)
    minor_units(amount_pico, paid.currency)
    refund_topup(
        paid.payment_reference or "",
        amount_pico,
        f"operator:{top_up_id}:{reference}",
        top_up_id=top_up_id,
        using=using,
    )
    _send(organization_id, top_up_id, using)


def note_paid_back(
    organization_id: UUID, top_up_id: UUID, amount_pico: int, using: str = HOUSEKEEPER
) -> None:
    """The money went back without us (a lost dispute): from the credit, once per top-up.

    Stripe is sent nothing; what was spent already is written off. Raises RefundTooLarge for more
    than was paid, TopUpNotFound, TopUpConflict for another amount than before, ValueError for an
    amount that its currency has no coin for.
    """
    paid = top_up(organization_id, top_up_id, using)
    minor_units(amount_pico, paid.currency)
    refund_topup(
        paid.payment_reference or "",
        amount_pico,
        f"paid-back:{top_up_id}",
        is_done=True,
        top_up_id=top_up_id,
        using=using,
    )


def settle_refunds(now: datetime, look_back: timedelta = WATCHED, using: str = HOUSEKEEPER) -> int:
    """Send what recent refunds of the books have not sent yet; returns how many were looked at."""
    recent = call(MADE, [now - look_back, now, REFUNDS_MAX], using)
    for organization_id, top_up_id in recent:
        _send(organization_id, top_up_id, using)
    return len(recent)


def overdue_refunds(now: datetime, using: str = HOUSEKEEPER) -> list[UnsentRefund]:
    """Refunds of the books that Stripe has not taken within REACH, and that nobody sends any more.

    Raises stripe.StripeError when Stripe is away, TopUpUnavailable without a key.
    """
    made = call(MADE, [now - REPORTED, now - REACH, REFUNDS_MAX], using)
    asked = [_unsent(organization_id, top_up_id, using)[0] for organization_id, top_up_id in made]
    return [each for each in asked if each.amount_pico > 0]


def _unsent(organization_id: UUID, top_up_id: UUID, using: str) -> tuple[UnsentRefund, int]:
    """What is still to be sent of a payment, and all that Stripe gave back of it so far."""
    paid = top_up(organization_id, top_up_id, using)
    if not paid.payment_reference:
        return UnsentRefund(organization_id, top_up_id, 0, paid.currency), 0
    intent = stripe_client().v1.payment_intents.retrieve(
        paid.payment_reference, {"expand": ["latest_charge"]}
    )
    charge = intent.to_dict()["latest_charge"]
    known_pico = pico_of(charge["amount_refunded"], charge["currency"])
    [(refunded,)] = call("SELECT billing_stripe_refunded(%s)", [top_up_id], using)
    unsent = UnsentRefund(organization_id, top_up_id, int(refunded) - known_pico, paid.currency)
    return unsent, known_pico


def _send(organization_id: UUID, top_up_id: UUID, using: str) -> None:
    """Bring what Stripe gave back of a payment up to what the books say."""
    try:
        unsent, known_pico = _unsent(organization_id, top_up_id, using)
        if unsent.amount_pico > 0:
            # The sum before is what makes this refund another than the last.
            stripe_client().v1.refunds.create(
                {
                    "payment_intent": top_up(organization_id, top_up_id, using).payment_reference,
                    "amount": minor_units(unsent.amount_pico, unsent.currency),
                },
                {"idempotency_key": f"refund-{top_up_id}-after-{known_pico}"},
            )
    except stripe.StripeError as error:
        logger.warning("a refund of %s waits for Stripe: %s", top_up_id, error.code or error)
