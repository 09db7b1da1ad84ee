"""Credit grants, which pay for metered prices only. Handlers of `app`."""

from typing import Any

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.customers import customer_of
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store

PRIORITY_DEFAULT = 50
PRIORITY_MAX = 100


def create_grant(store: Store, parameters: Parameters) -> Json:
    """POST /v1/billing/credit_grants"""
    customer = customer_of(store, parameters)
    if customer is None:
        raise invalid("Missing required param: customer.", "customer", "parameter_missing")
    amount = parameters.within("amount")
    amount.choice("type", ("monetary",), "monetary")
    monetary = amount.within("monetary")
    value, currency = monetary.needed_integer("value"), monetary.needed("currency")
    applicability = parameters.within("applicability_config")
    scope = applicability.within("scope")
    scope.choice("price_type", ("metered",), "metered")
    priority = parameters.integer("priority")
    for each in (monetary, amount, scope, applicability):
        each.finish()
    if value <= 0:
        raise invalid("The amount of a credit grant must be positive.", "amount[monetary][value]")
    if not 0 <= (PRIORITY_DEFAULT if priority is None else priority) <= PRIORITY_MAX:
        raise invalid(f"priority must be between 0 and {PRIORITY_MAX}", "priority")
    grant = store.add(
        "billing.credit_grant",
        {
            "id": store.new_id("credgr"),
            "object": "billing.credit_grant",
            "amount": {
                "monetary": {"currency": currency.lower(), "value": value},
                "type": "monetary",
            },
            "applicability_config": {"scope": {"price_type": "metered"}},
            "category": parameters.choice("category", ("paid", "promotional"), "paid"),
            "created": store.now(),
            "customer": customer["id"],
            "customer_account": None,
            "effective_at": parameters.integer("effective_at") or store.now(),
            "expires_at": parameters.integer("expires_at"),
            "livemode": False,
            "metadata": parameters.metadata(),
            "name": parameters.text("name"),
            "priority": PRIORITY_DEFAULT if priority is None else priority,
            "test_clock": None,
            "updated": store.now(),
            "voided_at": None,
        },
    )
    store.emit("billing.credit_grant.created", grant)
    return grant


def update_grant(store: Store, parameters: Parameters, grant_id: str) -> Json:
    """POST /v1/billing/credit_grants/{id}"""
    grant = store.get("billing.credit_grant", grant_id)
    changes: dict[str, Any] = {"metadata": parameters.metadata(grant["metadata"])}
    if parameters.given("expires_at"):
        changes["expires_at"] = parameters.integer("expires_at")
    return _changed(store, grant, **changes)


def expire_grant(store: Store, parameters: Parameters, grant_id: str) -> Json:
    """POST /v1/billing/credit_grants/{id}/expire"""
    return _changed(store, _unvoided(store, grant_id), expires_at=store.now())


def void_grant(store: Store, parameters: Parameters, grant_id: str) -> Json:
    """POST /v1/billing/credit_grants/{id}/void"""
    return _changed(store, _unvoided(store, grant_id), voided_at=store.now())


def _unvoided(store: Store, grant_id: str) -> Json:
    grant = store.get("billing.credit_grant", grant_id)
    if grant["voided_at"] is not None:
        raise invalid("This credit grant was voided.")
    return grant


def _changed(store: Store, grant: Json, **changes: Any) -> Json:
    grant.update(changes, updated=store.now())
    store.emit("billing.credit_grant.updated", grant)
    return grant


def balance(store: Store, parameters: Parameters) -> Json:
    """GET /v1/billing/credit_balance_summary: what grants in force come to, none of it used."""
    customer = customer_of(store, parameters)
    if customer is None:
        raise invalid("Missing required param: customer.", "customer", "parameter_missing")
    for name in ("type", "credit_grant"):
        parameters.within("filter").ignore(name)
    parameters.ignore("filter")
    sums: dict[str, int] = {}
    now = store.now()
    for grant in store.all("billing.credit_grant"):
        in_force = grant["effective_at"] <= now and (grant["expires_at"] or now + 1) > now
        if grant["customer"] == customer["id"] and in_force and grant["voided_at"] is None:
            monetary = grant["amount"]["monetary"]
            sums[monetary["currency"]] = sums.get(monetary["currency"], 0) + monetary["value"]
    return {
        "object": "billing.credit_balance_summary",
        "balances": [
            {
                name: {"monetary": {"currency": currency, "value": value}, "type": "monetary"}
                for name in ("available_balance", "ledger_balance")
            }
            for currency, value in sorted(sums.items())
        ],
        "customer": customer["id"],
        "customer_account": None,
        "livemode": False,
    }


ROUTES = (
    Route("POST", "/v1/billing/credit_grants", create_grant),
    Route(
        "GET",
        "/v1/billing/credit_grants",
        listing("billing.credit_grant", "/v1/billing/credit_grants", "customer"),
    ),
    Route("GET", "/v1/billing/credit_grants/{}", retrieve("billing.credit_grant")),
    Route("POST", "/v1/billing/credit_grants/{}", update_grant),
    Route("POST", "/v1/billing/credit_grants/{}/expire", expire_grant),
    Route("POST", "/v1/billing/credit_grants/{}/void", void_grant),
    Route("GET", "/v1/billing/credit_balance_summary", balance),
)
