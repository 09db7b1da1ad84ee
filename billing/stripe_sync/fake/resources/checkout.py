"""Checkout sessions and the hosted page that completes them. Handlers of `app`.

The page is plain: what is bought, a choice of test cards, one button. Completing a session makes
and confirms its payment intent, so everything that follows is as with any other payment.
"""

import copy
from typing import Any

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import attach, method_named
from billing.stripe_sync.fake.resources.catalog import new_price
from billing.stripe_sync.fake.resources.customers import customer_of
from billing.stripe_sync.fake.resources.payments import confirm_intent, new_intent, succeed_intent
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store, all_of, page

SESSION_S = 24 * 3600
SESSION_MIN_S = 30 * 60
IGNORED = (
    "allowed_payment_method_types",
    "allow_promotion_codes",
    "billing_address_collection",
    "automatic_tax",
    "tax_id_collection",
    "saved_payment_method_options",
    "customer_update",
    "payment_method_collection",
)


BLANK_SESSION: Json = {
    "object": "checkout.session",
    "adaptive_pricing": {"enabled": False},
    "after_expiration": None,
    "allow_promotion_codes": None,
    "automatic_tax": {"enabled": False, "liability": None, "provider": None, "status": None},
    "billing_address_collection": None,
    "client_secret": None,
    "collected_information": None,
    "consent": None,
    "consent_collection": None,
    "currency_conversion": None,
    "custom_fields": [],
    "custom_text": {
        "after_submit": None,
        "shipping_address": None,
        "submit": None,
        "terms_of_service_acceptance": None,
    },
    "customer_account": None,
    "customer_creation": None,
    "customer_details": None,
    "discounts": [],
    "invoice": None,
    "invoice_creation": None,
    "livemode": False,
    "origin_context": None,
    "payment_intent": None,
    "payment_link": None,
    "payment_method_collection": "if_required",
    "payment_method_configuration_details": None,
    "payment_method_options": {},
    "payment_method_types": ["card"],
    "permissions": None,
    "phone_number_collection": {"enabled": False},
    "recovered_from": None,
    "saved_payment_method_options": None,
    "setup_intent": None,
    "shipping_address_collection": None,
    "shipping_cost": None,
    "shipping_options": [],
    "status": "open",
    "subscription": None,
    "total_details": {"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
    "wallet_options": None,
}
"""What a session says whatever was asked."""


def create_session(store: Store, parameters: Parameters) -> Json:
    """POST /v1/checkout/sessions"""
    mode = parameters.choice("mode", ("payment", "setup"), "payment")
    customer = customer_of(store, parameters)
    success_url = parameters.needed("success_url")
    lines = [_line(store, each) for each in parameters.each("line_items")]
    if mode == "payment" and not lines:
        raise invalid("Missing required param: line_items.", "line_items", "parameter_missing")
    now = store.now()
    expires_at = parameters.integer("expires_at") or now + SESSION_S
    if not now + SESSION_MIN_S <= expires_at <= now + SESSION_S:
        raise invalid(
            "The `expires_at` timestamp must be between 30 minutes and 24 hours from"
            " Checkout Session creation.",
            "expires_at",
        )
    wanted = parameters.within("payment_intent_data")
    intent_data: dict[str, Any] = {
        "metadata": wanted.metadata(),
        "setup_future_usage": wanted.text("setup_future_usage"),
        "description": wanted.text("description"),
        "receipt_email": wanted.text("receipt_email"),
    }
    wanted.finish()
    total = sum(line["amount_total"] for line in lines)
    currency = lines[0]["currency"] if lines else parameters.text("currency")
    session_id = store.new_id("cs_test")
    session = copy.deepcopy(BLANK_SESSION) | {
        "id": session_id,
        "amount_subtotal": total if lines else None,
        "amount_total": total if lines else None,
        "cancel_url": parameters.text("cancel_url"),
        "client_reference_id": parameters.text("client_reference_id"),
        "created": now,
        "currency": currency,
        "customer": customer["id"] if customer else None,
        "customer_email": parameters.text("customer_email"),
        "expires_at": expires_at,
        "locale": parameters.text("locale"),
        "metadata": parameters.metadata(),
        "mode": mode,
        "payment_status": "unpaid" if mode == "payment" else "no_payment_required",
        "submit_type": parameters.text("submit_type"),
        "success_url": success_url,
        "ui_mode": parameters.choice("ui_mode", ("hosted_page",), "hosted_page"),
        "url": f"{store.public_url}/pay/{session_id}",
    }
    parameters.ignore(*IGNORED)
    parameters.finish()
    store.kinds.setdefault("checkout_details", {})[session_id] = {
        "id": session_id,
        "lines": lines,
        "payment_intent_data": intent_data,
    }
    return store.add("checkout.session", session)


def _line(store: Store, parameters: Parameters) -> Json:
    price_id = parameters.text("price")
    if price_id is not None:
        price = store.get("price", price_id, parameters.name("price"))
    else:
        price = new_price(store, parameters.within("price_data"))
    quantity = parameters.integer("quantity") or 1
    parameters.finish()
    amount = price["unit_amount"] * quantity
    return {
        "id": store.new_id("li"),
        "object": "item",
        "amount_discount": 0,
        "amount_subtotal": amount,
        "amount_tax": 0,
        "amount_total": amount,
        "currency": price["currency"],
        "description": store.get("product", price["product"])["name"],
        "price": price,
        "quantity": quantity,
    }


def line_items(store: Store, parameters: Parameters, session_id: str) -> Json:
    """GET /v1/checkout/sessions/{id}/line_items"""
    store.get("checkout.session", session_id)
    return page(
        iter(lines_of(store, session_id)),
        f"/v1/checkout/sessions/{session_id}/line_items",
        parameters.integer("limit"),
        parameters.text("starting_after"),
        parameters.text("ending_before"),
    )


def lines_of(store: Store, session_id: str) -> list[Json]:
    """What a session sells."""
    lines: list[Json] = store.get("checkout_details", session_id)["lines"]
    return lines


def expire(store: Store, parameters: Parameters, session_id: str) -> Json:
    """POST /v1/checkout/sessions/{id}/expire"""
    session = store.get("checkout.session", session_id)
    if session["status"] != "open":
        raise invalid('Only Checkout Sessions with a status in ["open"] can be expired.')
    _expire(store, session)
    return session


def expire_overdue(store: Store) -> None:
    """Expires what the clock has overtaken."""
    for session in list(store.all("checkout.session")):
        if session["status"] == "open" and session["expires_at"] <= store.now():
            _expire(store, session)


def _expire(store: Store, session: Json) -> None:
    session.update(status="expired", url=None)
    store.emit("checkout.session.expired", session)


def complete(store: Store, session_id: str, card: str) -> Json:
    """What the customer's pay button does. Raises Fault for a card that is declined."""
    expire_overdue(store)
    session = store.get("checkout.session", session_id)
    if session["status"] != "open":
        raise invalid(f"This Checkout Session is {session['status']}.")
    method = method_named(store, card)
    if session["mode"] == "payment":
        _pay(store, session, method)
    elif session["customer"] is not None:
        attach(store, method, session["customer"])
    session.update(
        status="complete",
        payment_status="paid" if session["mode"] == "payment" else "no_payment_required",
        url=None,
        customer_details={
            "address": None,
            "email": session["customer_email"],
            "name": None,
            "phone": None,
            "tax_exempt": "none",
            "tax_ids": None,
            "business_name": None,
            "individual_name": None,
        },
    )
    store.emit("checkout.session.completed", session)
    return session


def _pay(store: Store, session: Json, method: Json) -> None:
    data = store.get("checkout_details", session["id"])["payment_intent_data"]
    if session["payment_intent"] is None:
        intent = new_intent(
            store, session["amount_total"], session["currency"], session["customer"], **data
        )
        session["payment_intent"] = intent["id"]
    intent = store.get("payment_intent", session["payment_intent"])
    intent.update(payment_method=method["id"], status="requires_confirmation")
    confirm_intent(store, intent, off_session=False)
    if intent["status"] == "requires_action":  # the page is where the customer would confirm
        succeed_intent(store, intent, method)


def with_line_items(store: Store, session: Json) -> Json:
    """The list that `expand[]=line_items` adds."""
    url = f"/v1/checkout/sessions/{session['id']}/line_items"
    return all_of(lines_of(store, session["id"]), url)


ROUTES = (
    Route("POST", "/v1/checkout/sessions", create_session),
    Route(
        "GET",
        "/v1/checkout/sessions",
        listing(
            "checkout.session", "/v1/checkout/sessions", "customer", "payment_intent", "status"
        ),
    ),
    Route("GET", "/v1/checkout/sessions/{}", retrieve("checkout.session")),
    Route("GET", "/v1/checkout/sessions/{}/line_items", line_items),
    Route("POST", "/v1/checkout/sessions/{}/expire", expire),
)
