"""Giving money back by Stripe: the books first, then Stripe, as often as it takes.

The books' refunds are the outbox: what they say was given back of a payment, less what Stripe says,
is still to be sent. So nothing is lost between the two, and a refund begun in Stripe is never sent
again. Called by the operator's command and by a task, as the housekeeper.
"""

import logging
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
REFUNDS_MAX = 200
RECENT = """
    SELECT DISTINCT t.organization_id, t.id
      FROM billing_ledger_tx x
      JOIN billing_credit_grant g
        ON g.organization_id = x.organization_id AND g.ledger_tx_id = x.reverses
      JOIN billing_top_up t
        ON t.organization_id = g.organization_id AND g.source = 'top_up:' || t.id
     WHERE x.kind = 'refund' AND x.created_at >= %s
     LIMIT %s"""

logger = logging.getLogger(__name__)


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


def settle_refunds(now: datetime, look_back: timedelta = WATCHED, using: str = HOUSEKEEPER) -> int:
    """Send what recent refunds of the books have not sent yet; returns how many were looked at."""
    recent = call(RECENT, [now - look_back, REFUNDS_MAX], using)
    for organization_id, top_up_id in recent:
        _send(organization_id, top_up_id, using)
    return len(recent)


def _send(organization_id: UUID, top_up_id: UUID, using: str) -> None:
    """Bring what Stripe gave back of a payment up to what the books say."""
    paid = top_up(organization_id, top_up_id, using)
    if not paid.payment_reference:
        return
    try:
        intents = stripe_client().v1.payment_intents
        intent = intents.retrieve(paid.payment_reference, {"expand": ["latest_charge"]})
        charge = intent.to_dict()["latest_charge"]
        known_pico = pico_of(charge["amount_refunded"], charge["currency"])
        if paid.refunded_pico > known_pico:
            # The sum before is what makes this refund another than the last.
            stripe_client().v1.refunds.create(
                {
                    "payment_intent": intent.id,
                    "amount": minor_units(paid.refunded_pico - known_pico, paid.currency),
                },
                {"idempotency_key": f"refund-{top_up_id}-after-{known_pico}"},
            )
    except stripe.StripeError as error:
        logger.warning("a refund of %s waits for Stripe: %s", top_up_id, error.code or error)
