"""Stripe's test cards: what a payment with one comes to is a property of the card.

Called by the handlers of payment methods, payments, setups and Checkout.
"""

from billing.stripe_sync.fake.faults import Fault
from billing.stripe_sync.fake.store import Json, Store

CARDS = {
    # name: brand, last4, what a charge with it comes to
    "pm_card_visa": ("visa", "4242", ""),
    "pm_card_mastercard": ("mastercard", "4444", ""),
    "pm_card_chargeDeclined": ("visa", "0002", "generic_decline"),
    "pm_card_visa_chargeDeclined": ("visa", "0002", "generic_decline"),
    "pm_card_chargeDeclinedInsufficientFunds": ("visa", "9995", "insufficient_funds"),
    "pm_card_chargeDeclinedExpiredCard": ("visa", "0069", "expired_card"),
    "pm_card_chargeCustomerFail": ("visa", "0341", "generic_decline"),
    "pm_card_authenticationRequired": ("visa", "3184", "authentication_required"),
    "pm_card_authenticationRequiredOnSetup": ("visa", "3155", "authentication_on_session"),
}
"""By the ids that Stripe's test mode takes in place of a real payment method."""
REFUSED_AT_ATTACHMENT = {"0002", "9995", "0069"}
"""These cards are declined already when attached; 0341 attaches and fails when charged."""
NUMBERS = {f"400000000000{last4}": name for name, (_, last4, _) in CARDS.items()} | {
    "4242424242424242": "pm_card_visa",
    "5555555555554444": "pm_card_mastercard",
    "4000002760003184": "pm_card_authenticationRequired",
    "4000002500003155": "pm_card_authenticationRequiredOnSetup",
}
EXPIRY_YEAR = 2040


def outcome_of(method: Json) -> str:
    """What a charge with this card comes to; empty for success."""
    last4 = method["card"]["last4"]
    return next(outcome for _, known, outcome in CARDS.values() if known == last4)


def new_card(store: Store, name: str) -> Json:
    """A payment method of a test card."""
    brand, last4, outcome = CARDS[name]
    return store.add(
        "payment_method",
        {
            "id": store.new_id("pm"),
            "object": "payment_method",
            "allow_redisplay": "unspecified",
            "billing_details": {
                "address": None,
                "email": None,
                "name": None,
                "phone": None,
                "tax_id": None,
            },
            "card": {
                "brand": brand,
                "checks": {
                    "address_line1_check": None,
                    "address_postal_code_check": None,
                    "cvc_check": "pass",
                },
                "country": "US",
                "display_brand": brand,
                "exp_month": 12,
                "exp_year": EXPIRY_YEAR,
                "fingerprint": f"fake{last4}",
                "funding": "credit",
                "generated_from": None,
                "last4": last4,
                "networks": {"available": [brand], "preferred": None},
                "regulated_status": "unregulated",
                "three_d_secure_usage": {"supported": outcome.startswith("authentication")},
                "wallet": None,
            },
            "created": store.now(),
            "customer": None,
            "customer_account": None,
            "livemode": False,
            "metadata": {},
            "type": "card",
        },
    )


def method_named(store: Store, method_id: str, param: str = "payment_method") -> Json:
    """A payment method: a stored one, or a fresh one of a test card."""
    if method_id in CARDS:
        return new_card(store, method_id)
    return store.get("payment_method", method_id, param)


def attach(store: Store, method: Json, customer_id: str) -> Json:
    """Saves a card with a customer. Raises Fault for a card that is declined at once."""
    if method["card"]["last4"] in REFUSED_AT_ATTACHMENT:
        raise decline(outcome_of(method))
    method["customer"] = customer_id
    store.emit("payment_method.attached", method)
    return method


def decline(outcome: str, **members: Json | str) -> Fault:
    """402: the card does not pay."""
    if outcome.startswith("authentication"):
        return Fault(
            402,
            "Your card was declined. This transaction requires authentication.",
            type_="card_error",
            code="authentication_required",
            decline_code="authentication_required",
            **members,
        )
    code = "expired_card" if outcome == "expired_card" else "card_declined"
    message = {
        "insufficient_funds": "Your card has insufficient funds.",
        "expired_card": "Your card has expired.",
    }.get(outcome, "Your card was declined.")
    return Fault(402, message, type_="card_error", code=code, decline_code=outcome, **members)
