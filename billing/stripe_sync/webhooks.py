"""Messages from Stripe: believed when signed, applied once, in whatever order they come.

An event's marker and its effect are one transaction (`billing_stripe_apply`). What is not ours is
accepted and forgotten, since Stripe gives up an endpoint that refuses; what names rows that are not
here yet is refused for now, and comes again. Called by the web's route, as role app.
"""

import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from billing.contracts import StripeEventEarly, StripeEventInvalid, StripeEventOutcome
from billing.retry import call
from billing.stripe_sync.effects import Effect, effect_of
from billing.stripe_sync.signatures import verify

BODY_BYTES_MAX = 1024 * 1024
EARLY_MAX = timedelta(hours=24)
"""How long an event may name rows that are not here before it is taken for another house's."""

logger = logging.getLogger(__name__)


def receive(
    body: bytes,
    header: str | None,
    secrets: Sequence[str],
    now: datetime,
    using: str = "default",
) -> StripeEventOutcome:
    """Apply one message, or say that there was nothing to apply.

    Raises StripeSignatureInvalid, StripeEventInvalid for a signed message that makes no sense,
    StripeEventEarly when it has to come again.
    """
    if len(body) > BODY_BYTES_MAX:
        raise StripeEventInvalid(f"a message has at most {BODY_BYTES_MAX} bytes")
    verify(body, header, secrets, int(now.timestamp()))
    try:
        event = json.loads(body)
    except ValueError as error:
        raise StripeEventInvalid("the message is no JSON") from error
    if not isinstance(event, dict):
        raise StripeEventInvalid("the message is no event")
    effect = effect_of(event)
    if effect is None:
        return StripeEventOutcome.IGNORED
    outcome = apply(effect, using)
    if outcome is None:
        if now - effect.event_at <= EARLY_MAX:
            raise StripeEventEarly(f"event {effect.event_id} is of rows that are not here yet")
        logger.error(
            "stripe event %s (%s) names a customer or top-up that nobody here knows: let go",
            effect.event_id,
            effect.event_kind,
        )
        return StripeEventOutcome.IGNORED
    if outcome is StripeEventOutcome.QUARANTINED:
        logger.error(
            "stripe event %s (%s) contradicts the books: see billing_stripe_event",
            effect.event_id,
            effect.event_kind,
        )
    return outcome


def apply(effect: Effect, using: str) -> StripeEventOutcome | None:
    """Marker and effect in one transaction; None when the rows it names are not here."""
    [(outcome,)] = call(
        "SELECT billing_stripe_apply(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            effect.event_id,
            effect.event_kind,
            effect.event_at,
            effect.organization_id,
            effect.customer_id,
            effect.top_up_id,
            effect.kind.value,
            effect.payment,
            effect.currency,
            effect.paid_pico,
            effect.refunded_pico,
            effect.reason,
            effect.card,
        ],
        using,
    )
    return None if outcome == "unknown" else StripeEventOutcome(outcome)
