"""What an event means for the books. Pure; trusts the event's origin, not its shape.

An event is ours when it carries the metadata that we gave its payment: other programs may use the
same Stripe account, and their events are nobody's business here. Called by `webhooks`, and by
`payments` for what it asked Stripe itself.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from billing.contracts import StripeEventInvalid
from billing.stripe_sync.amounts import pico_of

ORGANIZATION_KEY = "headrace_organization"
TOP_UP_KEY = "headrace_top_up"
REASON_LENGTH_MAX = 200


class EffectKind(enum.StrEnum):
    """What happens to the top-up."""

    COMPLETE = "complete"
    FAIL = "fail"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Effect:
    """One event's effect on one top-up. `payment` is the payment intent's id, empty if none."""

    event_id: str
    event_kind: str
    event_at: datetime
    organization_id: UUID
    top_up_id: UUID
    customer_id: str
    kind: EffectKind
    payment: str
    currency: str
    paid_pico: int = 0
    refunded_pico: int = 0
    """All that was given back of the payment, so far."""
    reason: str = ""
    card: str = ""
    """The payment method that may be charged again without asking."""


def effect_of(event: Mapping[str, Any]) -> Effect | None:
    """The effect of a verified event, or None for one that is not ours or changes nothing.

    Raises StripeEventInvalid for one of ours that lacks what its kind must have.
    """
    try:
        about = event["data"]["object"]
        metadata = about.get("metadata") or {}
        if ORGANIZATION_KEY not in metadata or TOP_UP_KEY not in metadata:
            return None
        return _effect(event, about, metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StripeEventInvalid(f"an event that cannot be: {error!r}") from error


def _effect(
    event: Mapping[str, Any], about: Mapping[str, Any], metadata: Mapping[str, str]
) -> Effect | None:
    currency = str(about["currency"])
    known: dict[str, Any] = {  # what every effect says
        "event_id": str(event["id"]),
        "event_kind": str(event["type"]),
        "event_at": datetime.fromtimestamp(int(event["created"]), UTC),
        "organization_id": UUID(metadata[ORGANIZATION_KEY]),
        "top_up_id": UUID(metadata[TOP_UP_KEY]),
        "customer_id": str(about["customer"]),
        "currency": currency,
    }
    match event["type"]:
        case "payment_intent.succeeded":
            return Effect(
                **known,
                kind=EffectKind.COMPLETE,
                payment=str(about["id"]),
                paid_pico=_pico(about["amount_received"], currency),
                card=str(about["payment_method"] or "") if about["setup_future_usage"] else "",
            )
        case "payment_intent.payment_failed" | "payment_intent.canceled":
            return Effect(
                **known, kind=EffectKind.FAIL, payment=str(about["id"]), reason=failure_of(about)
            )
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            if about["payment_status"] != "paid":
                return None  # the payment is still under way and will say so itself
            return Effect(
                **known,
                kind=EffectKind.COMPLETE,
                payment=str(about["payment_intent"]),
                paid_pico=_pico(about["amount_total"], currency),
            )
        case "checkout.session.expired":
            return Effect(**known, kind=EffectKind.FAIL, payment="", reason="expired")
        case "charge.refunded":
            return Effect(
                **known,
                kind=EffectKind.REFUND,
                payment=str(about["payment_intent"]),
                paid_pico=_pico(about["amount"], currency),
                refunded_pico=_pico(about["amount_refunded"], currency),
            )
    return None


def _pico(units: Any, currency: str) -> int:
    if type(units) is not int or units < 0:
        raise ValueError(f"an amount of {units!r}")
    return pico_of(units, currency)


def failure_of(intent: Mapping[str, Any]) -> str:
    """Why a payment failed, in Stripe's words for programs."""
    error = intent.get("last_payment_error") or {}
    reason = error.get("decline_code") or error.get("code") or intent.get("cancellation_reason")
    return str(reason or intent.get("status") or "failed")[:REASON_LENGTH_MAX]
