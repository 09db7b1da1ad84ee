"""Applying Stripe's messages: believed when signed, applied once, in whatever order they come.

Whoever can write to the inbox may not be Stripe, so each signature is verified here, over the bytes
as they came and against the database's time of their coming. A message's end, its event's marker
and its effect are one transaction: whoever is killed in it leaves the message waiting. Called by a
task, as the housekeeper, which alone may move money by an event.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, connections, transaction

from billing.contracts import StripeEventInvalid, StripeEventOutcome, StripeSignatureInvalid
from billing.stripe_sync.effects import Effect, effect_of
from billing.stripe_sync.signatures import verify

HOUSEKEEPER = "housekeeper"
MESSAGES_MAX = 500
"""One run ends; the rest waits for the next."""
TRIES_MAX = 200
"""About two days, at PAUSE_MAX_S between most of them."""
PAUSE_MAX_S = 15 * 60
"""Between two tries; from one second on it doubles with each."""
EARLY_MAX = timedelta(hours=24)
"""How long an event may name rows that are not here before it is taken for another house's."""
_CLAIM = """
    SELECT id, body, signature, received_at, tries FROM billing_stripe_message
     WHERE outcome = '' AND next_try_at <= now()
     ORDER BY next_try_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
_APPLY = "SELECT billing_stripe_apply(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_END = """
    UPDATE billing_stripe_message
       SET outcome = %s, ended_at = now(), tries = tries + 1,
           body = CASE WHEN %s THEN body ELSE '' END
     WHERE id = %s"""
_POSTPONE = """
    UPDATE billing_stripe_message
       SET tries = tries + 1,
           next_try_at = clock_timestamp()
               + make_interval(secs => least(power(2, least(tries, 20)), %s))
     WHERE id = %s"""
_KEPT = frozenset(
    {
        StripeEventOutcome.QUARANTINED,
        StripeEventOutcome.REJECTED,
        StripeEventOutcome.INVALID,
        StripeEventOutcome.FAILED,
    }
)
"""Somebody must look at these: their bodies stay."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    id: int
    body: bytes
    signature: str
    received_at: datetime
    tries: int


def apply_messages(secrets: Sequence[str], now: datetime, using: str = HOUSEKEEPER) -> int:
    """Apply the messages that wait, the longest due first; returns how many were looked at.

    Several at once share them. Raises OperationalError when the database goes away: they wait on.
    """
    if not secrets:
        return 0  # nobody here can tell Stripe from others
    looked = 0
    while looked < MESSAGES_MAX and _apply_next(secrets, now, using):
        looked += 1
    return looked


def _apply_next(secrets: Sequence[str], now: datetime, using: str) -> bool:
    """One message, from claim to end; False when none is due."""
    with transaction.atomic(using=using, durable=True), connections[using].cursor() as cursor:
        cursor.execute(_CLAIM)
        row = cursor.fetchone()
        if row is None:
            return False
        message = _Message(row[0], bytes(row[1]), *row[2:])
        outcome = _outcome_of(message, secrets, now, using)
        if outcome is None:
            cursor.execute(_POSTPONE, [PAUSE_MAX_S, message.id])
        else:
            cursor.execute(_END, [outcome.value, outcome in _KEPT, message.id])
    return True


def _outcome_of(
    message: _Message, secrets: Sequence[str], now: datetime, using: str
) -> StripeEventOutcome | None:
    """What became of it; None for one that is to be tried again."""
    if not _is_signed(message, secrets):
        logger.error("stripe message %d in the inbox is not signed by stripe", message.id)
        return StripeEventOutcome.REJECTED
    try:
        effect = _effect_of(message.body)
        if effect is None:
            return StripeEventOutcome.IGNORED
        with transaction.atomic(using=using):
            return _applied(effect, now, using)
    except StripeEventInvalid:
        logger.exception("stripe message %d makes no sense", message.id)
        return StripeEventOutcome.INVALID
    except DatabaseError:
        if message.tries + 1 < TRIES_MAX:
            logger.warning("stripe message %d waits for the database", message.id, exc_info=True)
            return None
        logger.exception("stripe message %d is given up", message.id)
        return StripeEventOutcome.FAILED


def _is_signed(message: _Message, secrets: Sequence[str]) -> bool:
    try:
        verify(message.body, message.signature, secrets, int(message.received_at.timestamp()))
    except StripeSignatureInvalid:
        return False
    return True


def _effect_of(body: bytes) -> Effect | None:
    try:
        event = json.loads(body)
    except ValueError as error:
        raise StripeEventInvalid("the message is no JSON") from error
    if not isinstance(event, dict):
        raise StripeEventInvalid("the message is no event")
    return effect_of(event)


def _applied(effect: Effect, now: datetime, using: str) -> StripeEventOutcome | None:
    """Marker and effect, in the caller's transaction; None while the rows it names are not here."""
    with connections[using].cursor() as cursor:
        cursor.execute(_APPLY, _arguments(effect))
        [(outcome,)] = cursor.fetchall()
    if outcome == "unknown":
        if now - effect.event_at <= EARLY_MAX:
            return None
        logger.error(
            "stripe event %s (%s) names a customer or top-up that nobody here knows: let go",
            effect.event_id,
            effect.event_kind,
        )
        return StripeEventOutcome.IGNORED
    if outcome == StripeEventOutcome.QUARANTINED:
        logger.error(
            "stripe event %s (%s) contradicts the books: see billing_stripe_event",
            effect.event_id,
            effect.event_kind,
        )
    return StripeEventOutcome(outcome)


def _arguments(effect: Effect) -> list[Any]:
    return [
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
    ]
