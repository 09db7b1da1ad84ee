"""Customers, who own cards. Handlers of `app`."""

import copy

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import attach, method_named
from billing.stripe_sync.fake.routes import Route, listing
from billing.stripe_sync.fake.store import Json, Store

FIELDS = ("description", "email", "name", "phone")


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
    customer = living(store, customer_id)
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
    customer = living(store, customer_id)
    customer["deleted"] = True
    store.emit("customer.deleted", customer)
    return {"id": customer_id, "object": "customer", "deleted": True}


def living(store: Store, customer_id: str, param: str = "id") -> Json:
    """A customer that was not deleted; raises Fault naming the parameter that named it."""
    customer = store.get("customer", customer_id, param)
    if customer.get("deleted"):
        raise invalid(f"No such customer: '{customer_id}'", param, "resource_missing")
    return customer


def customer_of(store: Store, parameters: Parameters) -> Json | None:
    """The customer that a request names, if it names one."""
    customer_id = parameters.text("customer")
    return None if customer_id is None else living(store, customer_id, "customer")


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


ROUTES = (
    Route("POST", "/v1/customers", create_customer),
    Route("GET", "/v1/customers", listing("customer", "/v1/customers", "email")),
    Route("GET", "/v1/customers/{}", retrieve_customer),
    Route("POST", "/v1/customers/{}", update_customer),
    Route("DELETE", "/v1/customers/{}", delete_customer),
)
