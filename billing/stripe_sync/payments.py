"""Top-ups by Stripe: Checkout for people, the saved card for recharges, and what became of either.

The top-up's row is what drives a call and its id is what makes it safe to repeat: no key contains
an amount, an intent is confirmed at most once whatever is repeated. Messages say how a payment
ended; `settle` asks for those that were lost. Called by the wiring's provider and by a task.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import stripe
from django.conf import settings
from django.db import IntegrityError, models
from django.db.models import QuerySet
from stripe.params.checkout import SessionCreateParams

from billing.contracts import (
    BillingError,
    StartedTopUp,
    TopUp,
    TopUpConflict,
    TopUpState,
    TopUpUnavailable,
)
from billing.credit.topups import complete_topup, fail_topup, note_payment, top_up
from billing.models import StripeCheckout, TopUpRow
from billing.stripe_sync.amounts import minor_units, pico_of
from billing.stripe_sync.client import stripe_client
from billing.stripe_sync.customers import card_on_file, ensure_customer
from billing.stripe_sync.effects import ORGANIZATION_KEY, TOP_UP_KEY, failure_of
from tenants.facade import tenant_scope

HOUSEKEEPER = "housekeeper"
PRODUCT_NAME = "Prepaid credit"
MISSING = "resource_missing"
"""Of another key's page: nobody can pay it here."""
CONFIRMABLE = ("requires_payment_method", "requires_confirmation")
SETTLED_MAX = 200
"""Top-ups one run of `settle` looks at; the rest waits for the next."""
CHARGE_AGAIN_S = 60
"""A recharge that is younger may still be on its way in another process."""
LOOK_AGAIN_S = 15 * 60
ABANDONED_S = 25 * 3600
"""Nobody can pay any more by then: a page lives 24 hours."""

logger = logging.getLogger(__name__)


def begin(wanted: TopUp, return_url: str, using: str = "default") -> StartedTopUp:
    """The page on which the top-up is paid; the same page for the same top-up.

    Raises TopUpUnavailable when Stripe is away: begin it again with the same key.
    """
    if wanted.state in (TopUpState.SUCCEEDED, TopUpState.REFUNDED):
        return StartedTopUp(wanted, "")
    page = _page(wanted, using)
    if page is not None:
        return StartedTopUp(wanted, page.url)
    back = return_url or settings.PUBLIC_URL
    try:
        customer_id = ensure_customer(wanted.organization_id, using)
        session = stripe_client().v1.checkout.sessions.create(
            _session(wanted, customer_id, back), {"idempotency_key": _session_key(wanted, back)}
        )
    except stripe.StripeError as error:
        raise _unavailable(error) from error
    try:
        with tenant_scope(wanted.organization_id, using):
            StripeCheckout.objects.using(using).create(
                top_up_id=wanted.top_up_id,
                organization_id=wanted.organization_id,
                session_id=session.id,
                url=session.url or "",
                expires_at=datetime.fromtimestamp(session.expires_at, UTC),
            )
    except IntegrityError:
        page = _page(wanted, using)
        if page is None:
            raise
        if page.session_id != session.id:
            # Another page was first, and two of them could be paid twice.
            stripe_client().v1.checkout.sessions.expire(session.id)
        return StartedTopUp(wanted, page.url)
    return StartedTopUp(wanted, session.url or "")


def resume(wanted: TopUp, return_url: str, using: str = "default") -> StartedTopUp:
    """The page of a top-up that was begun, while it is open; one whose page could not be made then
    gets it now. Raises TopUpUnavailable."""
    page = _page(wanted, using)
    if page is None:
        return begin(wanted, return_url, using)
    try:
        session = stripe_client().v1.checkout.sessions.retrieve(page.session_id)
    except stripe.StripeError as error:
        if error.code == MISSING:
            return StartedTopUp(wanted, "")
        raise _unavailable(error) from error
    return StartedTopUp(wanted, page.url if session.status == "open" else "")


def charge(wanted: TopUp, using: str = HOUSEKEEPER) -> None:
    """Take a top-up from the card on file. Repeating it charges nothing twice.

    Without a card, or for an amount that its currency has no coin for, it fails at once. When
    Stripe is away it stays pending, for `settle`.
    """
    try:
        minor_units(wanted.amount_pico, wanted.currency)
    except ValueError:
        fail_topup(wanted.payment_reference, "amount_without_coin", wanted.top_up_id, using)
        return
    card = card_on_file(wanted.organization_id, using)
    if not card:
        fail_topup(wanted.payment_reference or "", "no_card_on_file", wanted.top_up_id, using)
        return
    try:
        intent = _intent(wanted, using)
        _require_its_own(wanted, intent.to_dict())
        # One that was declined stays so: trying a card again and again is not ours to do.
        if intent.status in CONFIRMABLE and intent.last_payment_error is None:
            intent = _confirmed(intent, card)
        _take_over(wanted, intent.to_dict(), using)
    except stripe.StripeError as error:
        logger.warning("top-up %s waits for Stripe: %s", wanted.top_up_id, error.code or error)


def settle(now: datetime, using: str = HOUSEKEEPER) -> int:
    """Ask Stripe about top-ups whose message is overdue; returns how many were looked at."""
    pending = TopUpRow.objects.using(using).filter(state=TopUpState.PENDING.value)
    recharges = pending.filter(
        is_recharge=True, created_at__lt=now - timedelta(seconds=CHARGE_AGAIN_S)
    )
    looked = 0
    for organization_id, top_up_id in _keys(recharges.order_by("created_at")):
        with _apart(top_up_id):
            charge(top_up(organization_id, top_up_id, using), using)
        looked += 1
    failed = TopUpRow.objects.using(using).filter(state=TopUpState.FAILED.value, is_recharge=False)
    pages = StripeCheckout.objects.using(using).filter(
        # After a declined card the page takes another one, until it expires.
        models.Q(top_up_id__in=pending.values("id"))
        | models.Q(top_up_id__in=failed.values("id"), looked_at__lte=models.F("expires_at")),
        looked_at__lt=now - timedelta(seconds=LOOK_AGAIN_S),
    )
    for page in list(pages.order_by("looked_at")[:SETTLED_MAX]):
        with _apart(page.top_up_id):
            _look_at(page, now, using)
        looked += 1
    abandoned = pending.filter(
        is_recharge=False, created_at__lt=now - timedelta(seconds=ABANDONED_S)
    ).exclude(id__in=StripeCheckout.objects.using(using).values("top_up_id"))
    for _, top_up_id in _keys(abandoned.order_by("created_at")):
        fail_topup("", "abandoned", top_up_id, using)
    return looked


@contextmanager
def _apart(top_up_id: UUID) -> Iterator[None]:
    """One that contradicts the books is somebody's to look at, and keeps no other waiting."""
    try:
        yield
    except (BillingError, ValueError):
        logger.exception("top-up %s and its payment contradict each other", top_up_id)


def _keys(rows: QuerySet[TopUpRow]) -> list[tuple[UUID, UUID]]:
    return list(rows.values_list("organization_id", "id")[:SETTLED_MAX])


def _page(wanted: TopUp, using: str) -> StripeCheckout | None:
    with tenant_scope(wanted.organization_id, using):
        return StripeCheckout.objects.using(using).filter(top_up_id=wanted.top_up_id).first()


def _metadata(wanted: TopUp) -> dict[str, str]:
    return {ORGANIZATION_KEY: str(wanted.organization_id), TOP_UP_KEY: str(wanted.top_up_id)}


def _session_key(wanted: TopUp, back: str) -> str:
    """Stable as long as the parameters are; of them, only the way back is not the row's."""
    return f"checkout-{wanted.top_up_id}-{hashlib.sha256(back.encode()).hexdigest()[:16]}"


def _session(wanted: TopUp, customer_id: str, back: str) -> SessionCreateParams:
    joint = "&" if urlsplit(back).query else "?"
    outcome = {name: urlencode({"top_up": name}) for name in ("done", "cancelled")}
    return {
        "mode": "payment",
        "customer": customer_id,
        "client_reference_id": str(wanted.top_up_id),
        "metadata": _metadata(wanted),
        "success_url": f"{back}{joint}{outcome['done']}",
        "cancel_url": f"{back}{joint}{outcome['cancelled']}",
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": wanted.currency.lower(),
                    "unit_amount": minor_units(wanted.amount_pico, wanted.currency),
                    "product_data": {"name": PRODUCT_NAME},
                },
            }
        ],
        # The card is kept for recharges, which Checkout asks the payer to agree to.
        "payment_intent_data": {
            "metadata": _metadata(wanted),
            "setup_future_usage": "off_session",
        },
    }


def _intent(wanted: TopUp, using: str) -> stripe.PaymentIntent:
    """The top-up's payment intent: the one noted, or one that is made and noted unconfirmed."""
    intents = stripe_client().v1.payment_intents
    if wanted.payment_reference:
        return intents.retrieve(wanted.payment_reference)
    intent = intents.create(
        {
            "amount": minor_units(wanted.amount_pico, wanted.currency),
            "currency": wanted.currency.lower(),
            "customer": ensure_customer(wanted.organization_id, using),
            "allowed_payment_method_types": ["card"],
            "metadata": _metadata(wanted),
        },
        {"idempotency_key": f"top-up-{wanted.top_up_id}"},
    )
    try:
        note_payment(wanted.organization_id, wanted.top_up_id, intent.id, using)
    except TopUpConflict:
        # Another process, a day or more later, made another one: its intent is the payment.
        noted = top_up(wanted.organization_id, wanted.top_up_id, using).payment_reference
        return intents.retrieve(noted or intent.id)
    return intent


def _confirmed(intent: stripe.PaymentIntent, card: str) -> stripe.PaymentIntent:
    """The intent after the attempt, whoever made it: only one confirmation can be the first.

    Not by an idempotency key, which would want the card of the first attempt.
    """
    intents = stripe_client().v1.payment_intents
    try:
        return intents.confirm(intent.id, {"payment_method": card, "off_session": True})
    except stripe.CardError:
        return intents.retrieve(intent.id)
    except stripe.InvalidRequestError as error:
        if error.code != "payment_intent_unexpected_state":
            raise
        return intents.retrieve(intent.id)


def _require_its_own(wanted: TopUp, intent: Mapping[str, Any]) -> None:
    """Raises TopUpConflict for somebody else's payment: the rows that name one, the web writes."""
    metadata = intent["metadata"] or {}
    of_this = {name: metadata.get(name) for name in (ORGANIZATION_KEY, TOP_UP_KEY)}
    if of_this != _metadata(wanted) or intent["currency"] != wanted.currency.lower():
        raise TopUpConflict(f"payment {intent['id']} is not this top-up's")


def _take_over(wanted: TopUp, intent: Mapping[str, Any], using: str) -> None:
    """What the intent says is what happened, whether or not its message ever comes."""
    match intent["status"]:
        case "succeeded":
            paid_pico = pico_of(intent["amount_received"], intent["currency"])
            complete_topup(intent["id"], paid_pico, wanted.top_up_id, using)
        case "processing":
            return
        case _:
            fail_topup(intent["id"], failure_of(intent), wanted.top_up_id, using)


def _look_at(page: StripeCheckout, now: datetime, using: str) -> None:
    """Ask what became of a page that has said nothing for long."""
    with tenant_scope(page.organization_id, using):
        mine = StripeCheckout.objects.using(using).filter(top_up_id=page.top_up_id)
        mine.update(looked_at=now)
    wanted = top_up(page.organization_id, page.top_up_id, using)
    try:
        session = stripe_client().v1.checkout.sessions.retrieve(
            page.session_id, {"expand": ["payment_intent"]}
        )
    except stripe.StripeError as error:
        if error.code == MISSING:
            fail_topup("", "page_missing", wanted.top_up_id, using)
            return
        logger.warning("top-up %s waits for Stripe: %s", wanted.top_up_id, error.code or error)
        return
    shown = session.to_dict()
    if shown["payment_status"] == "paid":
        _require_its_own(wanted, shown["payment_intent"])
        _take_over(wanted, shown["payment_intent"], using)
    elif shown["status"] == "expired":
        fail_topup("", "expired", wanted.top_up_id, using)


def _unavailable(error: stripe.StripeError) -> TopUpUnavailable:
    logger.warning("stripe refused or is away: %s", error.code or error)
    return TopUpUnavailable("the payment provider is away; try again shortly")
