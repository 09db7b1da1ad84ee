"""Payment intents, the charges they make, and refunds. Handlers of `app`; `checkout` pays here too.

An intent's status moves as Stripe's does; a charge succeeds or fails by its card.
"""

from typing import Any

from billing.stripe_sync.fake.customers import (
    attach,
    customer_of,
    decline,
    method_named,
    outcome_of,
)
from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store

AMOUNT_MIN = 50
"""Cents: Stripe's least charge in US dollars."""
AMOUNT_MAX = 99_999_999
CANCELLABLE = ("requires_payment_method", "requires_confirmation", "requires_action")
REFUND_REASONS = ("duplicate", "fraudulent", "requested_by_customer")


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
        {
            "id": intent_id,
            "object": "payment_intent",
            "amount": amount,
            "amount_capturable": 0,
            "amount_details": {"tip": {}},
            "amount_received": 0,
            "application": None,
            "application_fee_amount": None,
            "automatic_payment_methods": None,
            "canceled_at": None,
            "cancellation_reason": None,
            "capture_method": "automatic_async",
            "client_secret": f"{intent_id}_secret_{store.new_id('x')[2:]}",
            "confirmation_method": "automatic",
            "created": store.now(),
            "currency": currency.lower(),
            "customer": customer_id,
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
    charge = _charge(store, intent, method, outcome="")
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
    charge = _charge(store, intent, method, outcome)
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


def _charge(store: Store, intent: Json, method: Json, outcome: str) -> Json:
    paid = not outcome
    card = method["card"]
    charge_id = store.new_id("ch")
    return store.add(
        "charge",
        {
            "id": charge_id,
            "object": "charge",
            "amount": intent["amount"],
            "amount_captured": intent["amount"] if paid else 0,
            "amount_refunded": 0,
            "application": None,
            "application_fee": None,
            "application_fee_amount": None,
            "balance_transaction": store.new_id("txn") if paid else None,
            "billing_details": dict(method["billing_details"]),
            "calculated_statement_descriptor": "HEADRACE",
            "captured": paid,
            "created": store.now(),
            "currency": intent["currency"],
            "customer": intent["customer"],
            "description": intent["description"],
            "disputed": False,
            "failure_balance_transaction": None,
            "failure_code": None if paid else decline(outcome).error["code"],
            "failure_message": None if paid else decline(outcome).error["message"],
            "fraud_details": {},
            "livemode": False,
            "metadata": dict(intent["metadata"]),
            "on_behalf_of": None,
            "outcome": {
                "advice_code": None,
                "network_advice_code": None,
                "network_decline_code": None,
                "network_status": "approved_by_network" if paid else "declined_by_network",
                "reason": outcome or None,
                "risk_level": "normal",
                "risk_score": 12,
                "seller_message": "Payment complete." if paid else "The bank did not accept it.",
                "type": "authorized" if paid else "issuer_declined",
            },
            "paid": paid,
            "payment_intent": intent["id"],
            "payment_method": method["id"],
            "payment_method_details": {
                "type": "card",
                "card": {
                    "amount_authorized": intent["amount"] if paid else None,
                    "brand": card["brand"],
                    "checks": dict(card["checks"]),
                    "country": card["country"],
                    "exp_month": card["exp_month"],
                    "exp_year": card["exp_year"],
                    "fingerprint": card["fingerprint"],
                    "funding": card["funding"],
                    "installments": None,
                    "last4": card["last4"],
                    "mandate": None,
                    "network": card["brand"],
                    "three_d_secure": None,
                    "wallet": None,
                },
            },
            "receipt_email": intent["receipt_email"],
            "receipt_number": None,
            "receipt_url": None,
            "refunded": False,
            "review": None,
            "shipping": None,
            "source": None,
            "source_transfer": None,
            "statement_descriptor": None,
            "statement_descriptor_suffix": None,
            "status": "succeeded" if paid else "failed",
            "transfer_data": None,
            "transfer_group": None,
        },
    )


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


def create_refund(store: Store, parameters: Parameters) -> Json:
    """POST /v1/refunds: all that is left of the charge, unless an amount is given."""
    intent_id, charge_id = parameters.text("payment_intent"), parameters.text("charge")
    if charge_id is None:
        if intent_id is None:
            raise invalid(
                "One of the following params should be provided for this request:"
                " payment_intent or charge."
            )
        charge_id = store.get("payment_intent", intent_id, "payment_intent")["latest_charge"]
    charge = store.find("charge", charge_id or "")
    if charge is None or not charge["paid"]:
        raise invalid(
            "This PaymentIntent does not have a successful charge to refund.", "payment_intent"
        )
    left = charge["amount"] - charge["amount_refunded"]
    asked = parameters.integer("amount")
    reason = parameters.text("reason")
    metadata = parameters.metadata()
    parameters.finish()
    if reason not in (None, *REFUND_REASONS):
        raise invalid(f"Invalid reason: must be one of {', '.join(REFUND_REASONS)}", "reason")
    if left == 0:
        raise invalid(
            f"Charge {charge_id} has already been refunded.", "charge", "charge_already_refunded"
        )
    amount = left if asked is None else asked
    if not 0 < amount <= left:
        raise invalid("Refund amount is greater than unrefunded amount on charge.", "amount")
    before = {"amount_refunded": charge["amount_refunded"], "refunded": charge["refunded"]}
    charge["amount_refunded"] += amount
    charge["refunded"] = charge["amount_refunded"] == charge["amount"]
    refund = store.add(
        "refund",
        {
            "id": store.new_id("re"),
            "object": "refund",
            "amount": amount,
            "balance_transaction": store.new_id("txn"),
            "charge": charge_id,
            "created": store.now(),
            "currency": charge["currency"],
            "destination_details": {
                "card": {
                    "type": "refund",
                    "reference_status": "pending",
                    "reference_type": "acquirer_reference_number",
                },
                "type": "card",
            },
            "metadata": metadata,
            "payment_intent": charge["payment_intent"],
            "payment_method": charge["payment_method"],
            "reason": reason,
            "receipt_number": None,
            "source_transfer_reversal": None,
            "status": "succeeded",
            "transfer_reversal": None,
        },
    )
    store.emit("refund.created", refund)
    store.emit("charge.refunded", charge, before)
    store.emit("refund.updated", refund, {})
    return refund


ROUTES = (
    Route("POST", "/v1/payment_intents", create_intent),
    Route(
        "GET", "/v1/payment_intents", listing("payment_intent", "/v1/payment_intents", "customer")
    ),
    Route("GET", "/v1/payment_intents/{}", retrieve("payment_intent")),
    Route("POST", "/v1/payment_intents/{}", update_intent),
    Route("POST", "/v1/payment_intents/{}/confirm", confirm_existing),
    Route("POST", "/v1/payment_intents/{}/cancel", cancel_intent),
    Route("GET", "/v1/charges", listing("charge", "/v1/charges", "customer", "payment_intent")),
    Route("GET", "/v1/charges/{}", retrieve("charge")),
    Route("POST", "/v1/refunds", create_refund),
    Route("GET", "/v1/refunds", listing("refund", "/v1/refunds", "payment_intent", "charge")),
    Route("GET", "/v1/refunds/{}", retrieve("refund")),
)
