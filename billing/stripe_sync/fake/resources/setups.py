"""Setup intents: saving a card for later without a payment. Handlers of `app`."""

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.cards import attach, method_named
from billing.stripe_sync.fake.resources.customers import customer_of
from billing.stripe_sync.fake.routes import Route, retrieve
from billing.stripe_sync.fake.store import Json, Store


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
    Route("POST", "/v1/setup_intents", create_setup_intent),
    Route("GET", "/v1/setup_intents/{}", retrieve("setup_intent")),
    Route("POST", "/v1/setup_intents/{}/confirm", confirm_setup_intent),
)
