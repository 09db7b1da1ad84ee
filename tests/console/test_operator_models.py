"""Prices on the operator's pages: what is shown is charged, and tried before it is published."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from uuid_utils.compat import uuid7

from billing.contracts import PICO, ServiceTier, UsageCounts
from billing.facade import (
    list_prices,
    offers,
    price_books,
    price_history,
    publish_offer,
    quote,
    set_price,
    settle,
)
from headrace.operator_console.orders.carrying_out import carry_out
from tenants.facade import operator_of, read_organization
from tests.billing.cast import PENNY_MODEL, Tenant, make_tenant, used
from tests.console.operators import new_staff
from tests.headrace.door import Door

pytestmark = pytest.mark.usefixtures("django_database")


@pytest.fixture
def operator() -> Door:
    """Somebody of the staff, who has just signed in."""
    return Door().sign_in(new_staff())


@pytest.fixture
def model() -> str:
    """A model with prices of its own."""
    name = f"model-{uuid4().hex[:8]}"
    publish_offer(name, name, "test", 1000, 500)
    set_price(name, ServiceTier.INTERACTIVE, "input", 50_000)
    set_price(name, ServiceTier.INTERACTIVE, "output", 250_000)
    return name


def send(door: Door, verb: str, model: str, **fields: Any) -> httpx.Response:
    data = {
        "do": verb,
        "order_id": str(uuid7()),
        "model": model,
        "tier": "interactive",
        "currency": "USD",
        **fields,
    }
    return door.post("/operator/models/prices", data=data)


def ended(door: Door, answer: httpx.Response) -> str:
    """The page after a worker was there."""
    assert answer.status_code == 303, answer.text
    carry_out()
    return door.get(answer.headers["location"]).text


def prices(model: str) -> dict[str, int]:
    """In force, by class."""
    spans = list_prices(public_id=model, in_force_only=True)
    return {one.token_class.value: one.price_micros_per_mtok for one in spans}


def test_the_page_shows_the_prices_that_are_charged(operator: Door, model: str) -> None:
    page = operator.get("/operator/models", params={"model": model}).text

    assert model in page
    assert "$0.05" in page
    assert "$0.25" in page
    assert model in [one.public_id for one in offers()]
    tenant = make_tenant()
    sold = quote(tenant.organization_id, None, model, ServiceTier.INTERACTIVE)
    assert prices(model) == {
        "input": sold.input_micros_per_mtok,
        "output": sold.output_micros_per_mtok,
    }


def test_a_published_price_holds_and_names_who_published_it(operator: Door, model: str) -> None:
    text = ended(operator, send(operator, "publish", model, input="0.06", note="autumn"))

    assert "holds from" in text
    assert prices(model) == {"input": 60_000, "output": 250_000}
    book = price_books(1)[0]
    assert book.note == "autumn"
    assert book.created_by.startswith("operator.")


def test_an_announced_price_is_shown_and_not_in_force(operator: Door, model: str) -> None:
    begins = datetime.now(UTC) + timedelta(days=3)
    answer = send(operator, "publish", model, input="0.06", effective_at=f"{begins:%Y-%m-%dT%H:%M}")
    ended(operator, answer)

    assert prices(model)["input"] == 50_000
    assert "announced" in operator.get("/operator/models", params={"model": model}).text


def test_what_looks_like_a_slip_is_published_only_when_accepted(operator: Door, model: str) -> None:
    text = ended(operator, send(operator, "publish", model, input="50"))
    assert "Nothing was published: this looks odd." in text
    assert prices(model)["input"] == 50_000

    ended(operator, send(operator, "publish", model, input="50", accept_warnings="on"))

    assert prices(model)["input"] == 50_000_000


def spender() -> Tenant:
    """A tenant whose requests cost 170 pico-units by the list."""
    tenant = make_tenant("spender", credit_pico=PICO)
    settle([replace(used(tenant.held(), UsageCounts(60, 0, 40)), model_served=PENNY_MODEL)])
    return tenant


def test_a_preview_says_what_usage_would_have_cost_and_changes_nothing(operator: Door) -> None:
    tenant = spender()
    before = prices(PENNY_MODEL)
    doubled = "0.000002"
    text = ended(
        operator,
        send(
            operator,
            "preview",
            PENNY_MODEL,
            input=doubled,
            cached_input=doubled,
            output=doubled,
            tenant=slug_of(tenant),
        ),
    )

    assert "This is what the usage of the last 30 days would have cost." in text
    assert all(amount in text for amount in ("$0.0000000001", "$0.0000000002"))
    assert prices(PENNY_MODEL) == before
    assert f'value="{doubled}"' in text


def slug_of(tenant: Tenant) -> str:
    return read_organization(operator_of(tenant.organization_id)).slug


def test_a_price_for_one_tenant_is_that_tenants(operator: Door, model: str) -> None:
    tenant = make_tenant("vip")
    ended(operator, send(operator, "publish", model, input="0.01", tenant=slug_of(tenant)))

    own = price_history(operator_of(tenant.organization_id), public_id=model, in_force_only=True)
    assert [(one.price_micros_per_mtok, one.own) for one in own if one.own] == [(10_000, True)]
    assert prices(model)["input"] == 50_000


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "Write at least one price."),
        ({"input": "cheap"}, "This is no price"),
        ({"input": "0.0000001"}, "finer than a micro-unit"),
        ({"input": "1", "tenant": "nobody-at-all"}, "No tenant has this slug."),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    fields: dict[str, str], said: str, operator: Door, model: str
) -> None:
    answer = send(operator, "publish", model, **fields)

    assert answer.status_code == 422
    assert said in answer.text


def test_a_models_end_is_announced_and_taken_back(operator: Door, model: str) -> None:
    ends = datetime.now(UTC) + timedelta(days=30)
    data = {
        "do": "life",
        "model": model,
        "successor": PENNY_MODEL,
        "shutdown_at": f"{ends:%Y-%m-%dT%H:%M}",
    }
    make_tenant()
    ended(operator, operator.post("/operator/models", data=data | {"order_id": str(uuid7())}))
    [offer] = [one for one in offers() if one.public_id == model]
    assert offer.successor == PENNY_MODEL
    assert offer.shutdown_at == ends.replace(second=0, microsecond=0)

    data = {"do": "life", "model": model, "successor": "", "shutdown_at": ""}
    ended(operator, operator.post("/operator/models", data=data | {"order_id": str(uuid7())}))

    [offer] = [one for one in offers() if one.public_id == model]
    assert offer.shutdown_at is None
