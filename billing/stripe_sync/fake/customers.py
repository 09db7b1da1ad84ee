"""Customers, their cards, and setting a card up for later. Handlers of `app`.

Cards are Stripe's test cards; what a payment with one comes to is a property of the card.
"""

import copy

from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store, page

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
FIELDS = ("description", "email", "name", "phone")


def outcome_of(method: Json) -> str:
    """What a charge with this card comes to; empty for success."""
    last4 = method["card"]["last4"]
    return next(outcome for _, known, outcome in CARDS.values() if known == last4)


def create_customer(store: Store, parameters: Parameters) -> Json:
    """POST /v1/customers"""
    wanted_method = parameters.text("payment_method")
    customer = store.add(
        "customer",
        {
            "id": store.new_id("cus"),
            "object": "customer",
            "address": parameters.tree("address"),
            "balance": 0,
            "created": store.now(),
            "currency": None,
            "customer_account": None,
            "default_source": None,
            "delinquent": False,
            "discount": None,
            "invoice_prefix": store.new_id("x")[-8:].upper(),
            "invoice_settings": {
                "custom_fields": None,
                "default_payment_method": None,
                "footer": None,
                "rendering_options": None,
            },
            "livemode": False,
            "metadata": parameters.metadata(),
            "next_invoice_sequence": 1,
            "preferred_locales": parameters.words("preferred_locales"),
            "shipping": None,
            "tax_exempt": parameters.choice("tax_exempt", ("none", "exempt", "reverse"), "none"),
            "test_clock": None,
        }
        | {field: parameters.text(field) for field in FIELDS},
    )
    _invoice_settings(store, customer, parameters)
    if wanted_method is not None:
        attach(store, method_named(store, wanted_method), customer["id"])
    store.emit("customer.created", customer)
    return customer


def update_customer(store: Store, parameters: Parameters, customer_id: str) -> Json:
    """POST /v1/customers/{id}"""
    customer = _living(store, customer_id)
    before = copy.deepcopy(customer)
    for field in FIELDS:
        if parameters.given(field):
            customer[field] = parameters.text(field)
    if parameters.given("address"):
        customer["address"] = parameters.tree("address")
    customer["metadata"] = parameters.metadata(customer["metadata"])
    _invoice_settings(store, customer, parameters)
    store.emit(
        "customer.updated",
        customer,
        {key: before[key] for key in before if before[key] != customer[key]},
    )
    return customer


def retrieve_customer(store: Store, parameters: Parameters, customer_id: str) -> Json:
    """GET /v1/customers/{id}: a deleted one is shown as such."""
    customer = store.get("customer", customer_id)
    if customer.get("deleted"):
        return {"id": customer_id, "object": "customer", "deleted": True}
    return customer


def delete_customer(store: Store, parameters: Parameters, customer_id: str) -> Json:
    """DELETE /v1/customers/{id}"""
    customer = _living(store, customer_id)
    customer["deleted"] = True
    store.emit("customer.deleted", customer)
    return {"id": customer_id, "object": "customer", "deleted": True}


def _living(store: Store, customer_id: str, param: str = "id") -> Json:
    customer = store.get("customer", customer_id, param)
    if customer.get("deleted"):
        raise invalid(f"No such customer: '{customer_id}'", param, "resource_missing")
    return customer


def customer_of(store: Store, parameters: Parameters) -> Json | None:
    """The customer that a request names, if it names one."""
    customer_id = parameters.text("customer")
    return None if customer_id is None else _living(store, customer_id, "customer")


def _invoice_settings(store: Store, customer: Json, parameters: Parameters) -> None:
    settings = parameters.within("invoice_settings")
    if settings.given("default_payment_method"):
        method = settings.text("default_payment_method")
        if method is not None and store.get("payment_method", method)["customer"] != customer["id"]:
            raise invalid(
                "The customer does not have a payment method with this ID.",
                "invoice_settings[default_payment_method]",
            )
        customer["invoice_settings"]["default_payment_method"] = method
    settings.finish()


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


def create_method(store: Store, parameters: Parameters) -> Json:
    """POST /v1/payment_methods, with a test card's number or token."""
    parameters.choice("type", ("card",), "card")
    card = parameters.within("card")
    token, number = card.text("token"), card.text("number")
    card.ignore("exp_month", "exp_year", "cvc")
    card.finish()
    parameters.ignore("billing_details", "allow_redisplay")
    name = token.replace("tok_", "pm_card_") if token else NUMBERS.get(number or "")
    if name not in CARDS:
        raise Fault(
            402,
            "Your card number is incorrect.",
            type_="card_error",
            code="incorrect_number",
            param="number",
        )
    method = new_card(store, name)
    method["metadata"] = parameters.metadata()
    return method


def attach_method(store: Store, parameters: Parameters, method_id: str) -> Json:
    """POST /v1/payment_methods/{id}/attach"""
    customer = _living(store, parameters.needed("customer"), "customer")
    method = method_named(store, method_id, "id")
    if method["customer"] not in (None, customer["id"]):
        raise invalid("The payment method you provided has already been attached to a customer.")
    return attach(store, method, customer["id"])


def detach_method(store: Store, parameters: Parameters, method_id: str) -> Json:
    """POST /v1/payment_methods/{id}/detach"""
    method = store.get("payment_method", method_id)
    if method["customer"] is None:
        raise invalid(
            "The payment method you provided is not attached to a customer so detachment"
            " is impossible."
        )
    owner = store.get("customer", method["customer"])
    if owner["invoice_settings"]["default_payment_method"] == method_id:
        owner["invoice_settings"]["default_payment_method"] = None
    before = {"customer": method["customer"]}
    method["customer"] = None
    store.emit("payment_method.detached", method, before)
    return method


def list_methods(store: Store, parameters: Parameters) -> Json:
    """GET /v1/payment_methods: those of one customer."""
    customer_id = parameters.text("customer")
    kind = parameters.text("type")
    return _methods(store, parameters, customer_id, kind, "/v1/payment_methods")


def list_customer_methods(store: Store, parameters: Parameters, customer_id: str) -> Json:
    """GET /v1/customers/{id}/payment_methods"""
    _living(store, customer_id)
    kind = parameters.text("type")
    return _methods(
        store, parameters, customer_id, kind, f"/v1/customers/{customer_id}/payment_methods"
    )


def _methods(
    store: Store, parameters: Parameters, customer_id: str | None, kind: str | None, url: str
) -> Json:
    owned = (
        each
        for each in store.all("payment_method")
        if customer_id is not None
        and each["customer"] == customer_id
        and kind in (None, each["type"])
    )
    return page(
        owned,
        url,
        parameters.integer("limit"),
        parameters.text("starting_after"),
        parameters.text("ending_before"),
    )


def create_setup_intent(store: Store, parameters: Parameters) -> Json:
    """POST /v1/setup_intents"""
    customer = customer_of(store, parameters)
    method_id = parameters.text("payment_method")
    confirm = parameters.flag("confirm")
    intent_id = store.new_id("seti")
    intent = {
        "id": intent_id,
        "object": "setup_intent",
        "application": None,
        "automatic_payment_methods": None,
        "cancellation_reason": None,
        "client_secret": f"{intent_id}_secret_{store.new_id('x')[2:]}",
        "created": store.now(),
        "customer": customer["id"] if customer else None,
        "customer_account": None,
        "description": parameters.text("description"),
        "last_setup_error": None,
        "latest_attempt": None,
        "livemode": False,
        "mandate": None,
        "metadata": parameters.metadata(),
        "next_action": None,
        "on_behalf_of": None,
        "payment_method": None,
        "payment_method_options": None,
        "payment_method_types": parameters.words("allowed_payment_method_types") or ["card"],
        "single_use_mandate": None,
        "status": "requires_payment_method",
        "usage": parameters.choice("usage", ("off_session", "on_session"), "off_session"),
    }
    parameters.ignore("automatic_payment_methods", "return_url")
    store.add("setup_intent", intent)
    store.emit("setup_intent.created", intent)
    if method_id is not None:
        intent["payment_method"] = method_named(store, method_id)["id"]
        intent["status"] = "requires_confirmation"
    if confirm:
        _confirm_setup(store, intent)
    return intent


def confirm_setup_intent(store: Store, parameters: Parameters, intent_id: str) -> Json:
    """POST /v1/setup_intents/{id}/confirm"""
    intent = store.get("setup_intent", intent_id)
    method_id = parameters.text("payment_method")
    parameters.ignore("return_url")
    if method_id is not None:
        intent["payment_method"] = method_named(store, method_id)["id"]
    _confirm_setup(store, intent)
    return intent


def _confirm_setup(store: Store, intent: Json) -> None:
    if intent["payment_method"] is None or intent["status"] in ("succeeded", "canceled"):
        raise invalid(
            f"You cannot confirm this SetupIntent because it has a status of {intent['status']}.",
            code="setup_intent_unexpected_state",
        )
    method = store.get("payment_method", intent["payment_method"])
    if intent["customer"] is not None:
        attach(store, method, intent["customer"])
    intent["status"] = "succeeded"
    store.emit("setup_intent.succeeded", intent)


ROUTES = (
    Route("POST", "/v1/customers", create_customer),
    Route("GET", "/v1/customers", listing("customer", "/v1/customers", "email")),
    Route("GET", "/v1/customers/{}", retrieve_customer),
    Route("POST", "/v1/customers/{}", update_customer),
    Route("DELETE", "/v1/customers/{}", delete_customer),
    Route("GET", "/v1/customers/{}/payment_methods", list_customer_methods),
    Route("POST", "/v1/payment_methods", create_method),
    Route("GET", "/v1/payment_methods", list_methods),
    Route("GET", "/v1/payment_methods/{}", retrieve("payment_method")),
    Route("POST", "/v1/payment_methods/{}/attach", attach_method),
    Route("POST", "/v1/payment_methods/{}/detach", detach_method),
    Route("POST", "/v1/setup_intents", create_setup_intent),
    Route("GET", "/v1/setup_intents/{}", retrieve("setup_intent")),
    Route("POST", "/v1/setup_intents/{}/confirm", confirm_setup_intent),
)
