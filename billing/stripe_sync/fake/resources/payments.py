"""Payment intents: their status moves as Stripe's does. Handlers of `app`.

Checkout and invoices are paid here too.
"""

import copy
from typing import Any

from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import attach, decline, method_named, outcome_of
from billing.stripe_sync.fake.resources.charges import new_charge
from billing.stripe_sync.fake.resources.customers import customer_of
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store

AMOUNT_MIN = 50
"""Cents: Stripe's least charge in US dollars."""
AMOUNT_MAX = 99_999_999
CANCELLABLE = ("requires_payment_method", "requires_confirmation", "requires_action")


BLANK_INTENT: Json = {
    "object": "payment_intent",
    "amount_capturable": 0,
    "amount_details": {"tip": {}},
    "amount_received": 0,
    "application": None,
    "application_fee_amount": None,
    "automatic_payment_methods": None,
    "canceled_at": None,
    "cancellation_reason": None,
    "capture_method": "automatic_async",
    "confirmation_method": "automatic",
    "customer_account": None,
    "description": None,
    "last_payment_error": None,
    "latest_charge": None,
    "livemode": False,
    "metadata": {},
    "next_action": None,
    "on_behalf_of": None,
    "payment_method": None,
    "payment_method_configuration_details": None,
    "payment_method_options": {},
    "payment_method_types": ["card"],
    "processing": None,
    "receipt_email": None,
    "review": None,
    "setup_future_usage": None,
    "shipping": None,
    "source": None,
    "statement_descriptor": None,
    "statement_descriptor_suffix": None,
    "status": "requires_payment_method",
    "transfer_data": None,
    "transfer_group": None,
}
"""What an intent says before anything happened to it."""


def new_intent(
    store: Store, amount: int, currency: str, customer_id: str | None, **members: Any
) -> Json:
    """An intent that has not been confirmed. Raises Fault for an amount that cannot be charged."""
    if amount < AMOUNT_MIN:
        raise invalid("Amount must be at least $0.50 usd", "amount", "amount_too_small")
    if amount > AMOUNT_MAX:
        raise invalid("Amount must be no more than $999,999.99", "amount", "amount_too_large")
    intent_id = store.new_id("pi")
    intent = store.add(
        "payment_intent",
        copy.deepcopy(BLANK_INTENT)
        | {
            "id": intent_id,
            "amount": amount,
            "client_secret": f"{intent_id}_secret_{store.new_id('x')[2:]}",
            "created": store.now(),
            "currency": currency.lower(),
            "customer": customer_id,
        }
        | members,
    )
    store.emit("payment_intent.created", intent)
    return intent


def create_intent(store: Store, parameters: Parameters) -> Json:
    """POST /v1/payment_intents"""
    amount = parameters.needed_integer("amount")
    currency = parameters.needed("currency")
    customer = customer_of(store, parameters)
    method_id = parameters.text("payment_method")
    confirm, off_session = parameters.flag("confirm"), parameters.flag("off_session")
    members = {
        "description": parameters.text("description"),
        "metadata": parameters.metadata(),
        "receipt_email": parameters.text("receipt_email"),
        "setup_future_usage": parameters.text("setup_future_usage"),
        "statement_descriptor": parameters.text("statement_descriptor"),
        "statement_descriptor_suffix": parameters.text("statement_descriptor_suffix"),
    }
    automatic = parameters.within("automatic_payment_methods")
    if automatic.given("enabled"):
        members["automatic_payment_methods"] = {
            "enabled": automatic.flag("enabled"),
            "allow_redirects": automatic.choice("allow_redirects", ("always", "never"), "always"),
        }
    automatic.finish()
    parameters.words("allowed_payment_method_types")
    parameters.ignore(
        "return_url",
        "error_on_requires_action",
        "confirmation_method",
        "capture_method",
        "payment_method_options",
    )
    if off_session and not confirm:
        raise invalid("You must set `confirm` to true if `off_session` is passed.", "off_session")
    parameters.finish()
    method = None if method_id is None else _usable(store, method_id, customer)
    intent = new_intent(store, amount, currency, customer["id"] if customer else None, **members)
    if method is not None:
        intent["payment_method"] = method["id"]
        intent["status"] = "requires_confirmation"
    if confirm:
        confirm_intent(store, intent, off_session=off_session)
    return intent


def _usable(store: Store, method_id: str, customer: Json | None) -> Json:
    method = method_named(store, method_id)
    owner = method["customer"]
    if owner is not None and (customer is None or owner != customer["id"]):
        raise invalid(
            "The provided PaymentMethod belongs to another customer, or the customer is missing.",
            "payment_method",
        )
    return method


def confirm_intent(store: Store, intent: Json, *, off_session: bool) -> None:
    """Charges the intent's card. Raises Fault when the card refuses or the intent cannot."""
    if intent["status"] not in ("requires_confirmation", "requires_payment_method"):
        raise Fault(
            400,
            "This PaymentIntent's status is " + intent["status"] + ": it cannot be confirmed.",
            code="payment_intent_unexpected_state",
            payment_intent=intent,
        )
    if intent["payment_method"] is None:
        raise Fault(
            400,
            "You cannot confirm this PaymentIntent without a payment method.",
            code="payment_intent_unexpected_state",
            payment_intent=intent,
        )
    method = store.get("payment_method", intent["payment_method"])
    outcome = outcome_of(method)
    if outcome.startswith("authentication") and not off_session:
        intent["status"] = "requires_action"
        intent["next_action"] = {"type": "use_stripe_sdk", "use_stripe_sdk": {}}
        store.emit("payment_intent.requires_action", intent)
        return
    saved_for_later = outcome == "authentication_on_session" and method["customer"] is not None
    if outcome and not saved_for_later:
        fail_intent(store, intent, method, outcome)
    succeed_intent(store, intent, method)


def succeed_intent(store: Store, intent: Json, method: Json) -> None:
    """The card paid."""
    charge = new_charge(store, intent, method, outcome="")
    intent.update(
        status="succeeded",
        amount_received=intent["amount"],
        next_action=None,
        last_payment_error=None,
        latest_charge=charge["id"],
    )
    if intent["setup_future_usage"] and intent["customer"] and method["customer"] is None:
        attach(store, method, intent["customer"])
    store.emit("charge.succeeded", charge)
    store.emit("payment_intent.succeeded", intent)


def fail_intent(store: Store, intent: Json, method: Json, outcome: str) -> None:
    """The card refused: records it, then raises Stripe's 402."""
    charge = new_charge(store, intent, method, outcome)
    fault = decline(
        outcome, charge=charge["id"], payment_method=dict(method), payment_method_type="card"
    )
    intent.update(
        status="requires_payment_method",
        payment_method=None,
        next_action=None,
        last_payment_error=dict(fault.error),
        latest_charge=charge["id"],
    )
    store.emit("charge.failed", charge)
    store.emit("payment_intent.payment_failed", intent)
    fault.error["payment_intent"] = dict(intent)
    raise fault


def update_intent(store: Store, parameters: Parameters, intent_id: str) -> Json:
    """POST /v1/payment_intents/{id}"""
    intent = store.get("payment_intent", intent_id)
    if parameters.given("description"):
        intent["description"] = parameters.text("description")
    intent["metadata"] = parameters.metadata(intent["metadata"])
    return intent


def confirm_existing(store: Store, parameters: Parameters, intent_id: str) -> Json:
    """POST /v1/payment_intents/{id}/confirm"""
    intent = store.get("payment_intent", intent_id)
    method_id = parameters.text("payment_method")
    off_session = parameters.flag("off_session")
    parameters.ignore("return_url")
    parameters.finish()
    if method_id is not None:
        owner = intent["customer"] and store.get("customer", intent["customer"])
        intent["payment_method"] = _usable(store, method_id, owner)["id"]
    confirm_intent(store, intent, off_session=off_session)
    return intent


def cancel_intent(store: Store, parameters: Parameters, intent_id: str) -> Json:
    """POST /v1/payment_intents/{id}/cancel"""
    intent = store.get("payment_intent", intent_id)
    reason = parameters.text("cancellation_reason")
    if intent["status"] not in CANCELLABLE:
        raise Fault(
            400,
            "You cannot cancel this PaymentIntent because it has a status of "
            + intent["status"]
            + ".",
            code="payment_intent_unexpected_state",
            payment_intent=intent,
        )
    intent.update(status="canceled", canceled_at=store.now(), cancellation_reason=reason)
    store.emit("payment_intent.canceled", intent)
    return intent


ROUTES = (
    Route("POST", "/v1/payment_intents", create_intent),
    Route(
        "GET", "/v1/payment_intents", listing("payment_intent", "/v1/payment_intents", "customer")
    ),
    Route("GET", "/v1/payment_intents/{}", retrieve("payment_intent")),
    Route("POST", "/v1/payment_intents/{}", update_intent),
    Route("POST", "/v1/payment_intents/{}/confirm", confirm_existing),
    Route("POST", "/v1/payment_intents/{}/cancel", cancel_intent),
)
