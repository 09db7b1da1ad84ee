"""Payment methods: cards saved with customers. Handlers of `app`."""

from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import CARDS, NUMBERS, attach, method_named, new_card
from billing.stripe_sync.fake.resources.customers import living
from billing.stripe_sync.fake.routes import Route, retrieve
from billing.stripe_sync.fake.store import Json, Store, page


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
    customer = living(store, parameters.needed("customer"), "customer")
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
    living(store, customer_id)
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


ROUTES = (
    Route("GET", "/v1/customers/{}/payment_methods", list_customer_methods),
    Route("POST", "/v1/payment_methods", create_method),
    Route("GET", "/v1/payment_methods", list_methods),
    Route("GET", "/v1/payment_methods/{}", retrieve("payment_method")),
    Route("POST", "/v1/payment_methods/{}/attach", attach_method),
    Route("POST", "/v1/payment_methods/{}/detach", detach_method),
)
