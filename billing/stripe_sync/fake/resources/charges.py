"""Charges, which payment intents make, and refunds of them. Handlers of `app`."""

import copy

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import decline
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store

REFUND_REASONS = ("duplicate", "fraudulent", "requested_by_customer")


BLANK_CHARGE: Json = {
    "object": "charge",
    "amount_refunded": 0,
    "application": None,
    "application_fee": None,
    "application_fee_amount": None,
    "calculated_statement_descriptor": "HEADRACE",
    "disputed": False,
    "failure_balance_transaction": None,
    "fraud_details": {},
    "livemode": False,
    "on_behalf_of": None,
    "receipt_number": None,
    "receipt_url": None,
    "refunded": False,
    "review": None,
    "shipping": None,
    "source": None,
    "source_transfer": None,
    "statement_descriptor": None,
    "statement_descriptor_suffix": None,
    "transfer_data": None,
    "transfer_group": None,
}
"""What a charge says however it went."""


def new_charge(store: Store, intent: Json, method: Json, outcome: str) -> Json:
    """An attempt to take an intent's amount; `outcome` is empty when the card paid."""
    paid = not outcome
    card = method["card"]
    charge_id = store.new_id("ch")
    return store.add(
        "charge",
        copy.deepcopy(BLANK_CHARGE)
        | {
            "id": charge_id,
            "amount": intent["amount"],
            "amount_captured": intent["amount"] if paid else 0,
            "balance_transaction": store.new_id("txn") if paid else None,
            "billing_details": dict(method["billing_details"]),
            "captured": paid,
            "created": store.now(),
            "currency": intent["currency"],
            "customer": intent["customer"],
            "description": intent["description"],
            "failure_code": None if paid else decline(outcome).error["code"],
            "failure_message": None if paid else decline(outcome).error["message"],
            "metadata": dict(intent["metadata"]),
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
            "status": "succeeded" if paid else "failed",
        },
    )


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
    refund = _refund(store, charge, amount, reason, metadata)
    store.emit("refund.created", refund)
    store.emit("charge.refunded", charge, before)
    store.emit("refund.updated", refund, {})
    return refund


def _refund(store: Store, charge: Json, amount: int, reason: str | None, metadata: Json) -> Json:
    return store.add(
        "refund",
        {
            "id": store.new_id("re"),
            "object": "refund",
            "amount": amount,
            "balance_transaction": store.new_id("txn"),
            "charge": charge["id"],
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


ROUTES = (
    Route("GET", "/v1/charges", listing("charge", "/v1/charges", "customer", "payment_intent")),
    Route("GET", "/v1/charges/{}", retrieve("charge")),
    Route("POST", "/v1/refunds", create_refund),
    Route("GET", "/v1/refunds", listing("refund", "/v1/refunds", "payment_intent", "charge")),
    Route("GET", "/v1/refunds/{}", retrieve("refund")),
)
