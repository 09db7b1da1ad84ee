"""Models at the public door: under tenants' own names, at changing prices, and on their way out."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

import openai
import pytest

from billing.contracts import Alias, ServiceTier
from billing.facade import create_alias, set_offer_life, set_price
from tenants.facade import operator_of
from tests import books
from tests.billing.cast import make_offer
from tests.house import LiveHouse, Tenant
from tests.prompts import chat

FRANCE = chat("What is the capital of France?")
INTERACTIVE = ServiceTier.INTERACTIVE


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """A tenant with credit."""
    return house.new_tenant()


def alias(tenant: Tenant, name: str, model: str, *, in_project: bool = False) -> Alias:
    """A name of the tenant's own."""
    project_id = tenant.project_id if in_project else None
    return create_alias(operator_of(tenant.organization_id), name, model, project_id)


def raw_answer(house: LiveHouse, tenant: Tenant, model: str, **fields: Any) -> Any:
    """A short completion, with its headers."""
    return house.client(tenant.secret).chat.completions.with_raw_response.create(
        model=model, messages=FRANCE, temperature=0, max_tokens=4, **fields
    )


def test_a_script_with_another_vendors_model_runs_unchanged(house: LiveHouse, acme: Tenant) -> None:
    alias(acme, "gpt-4o-mini", house.model)

    raw = raw_answer(house, acme, "gpt-4o-mini")
    streamed = list(
        house.client(acme.secret).chat.completions.create(
            model="gpt-4o-mini", messages=FRANCE, temperature=0, max_tokens=4, stream=True
        )
    )

    assert raw.parse().model == "gpt-4o-mini"
    assert {chunk.model for chunk in streamed} == {"gpt-4o-mini"}
    receipt = house.receipt(acme, raw.headers["x-request-id"])
    assert (receipt["model_asked"], receipt["model_served"]) == ("gpt-4o-mini", house.model)
    assert int(receipt["amount_pico"]) > 0
    assert books.rows(
        "SELECT DISTINCT model_asked, model_served FROM billing_usage_event"
        " WHERE organization_id = %s",
        acme.organization_id,
    ) == [("gpt-4o-mini", house.model)]


def test_an_alias_means_nothing_to_others(house: LiveHouse, acme: Tenant) -> None:
    name = f"mine-{uuid4().hex[:8]}"
    alias(acme, name, house.model)

    with pytest.raises(openai.NotFoundError) as refusal:
        raw_answer(house, house.new_tenant(), name)

    assert refusal.value.code == "model_not_found"


def test_the_list_has_the_catalog_and_the_projects_aliases(house: LiveHouse, acme: Tenant) -> None:
    for_all = alias(acme, "acme/chat:small", house.model).name
    for_one = alias(acme, "gpt-4o-mini", house.model, in_project=True).name
    other = make_offer(f"org/other-{uuid4().hex[:8]}:q4", 50_000, None, 250_000)
    client = house.client(acme.secret)

    listed = {model.id: model.model_dump() for model in client.models.list()}

    assert {house.model, for_all, for_one, other} <= listed.keys()
    assert listed[for_all]["served_model"] == house.model
    assert listed[other]["pricing"] == {
        "prompt": "0.00000005",
        "completion": "0.00000025",
        "input_cache_read": "0.00000005",
        "input_cache_write": "0.00000005",
    }
    assert listed[other]["context_length"] == 8192
    assert listed[other]["shutdown_date"] is None
    for name in (house.model, for_all, for_one, other):
        assert client.models.retrieve(name).model_dump() == listed[name]
    others = {model.id for model in house.client(house.new_tenant().secret).models.list()}
    assert not {for_all, for_one} & others


@pytest.fixture
def successor(house: LiveHouse) -> Iterator[str]:
    """The house's model is deprecated in favour of another."""
    heir = make_offer(f"org/heir-{uuid4().hex[:8]}:q8", 1, 1, 1)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    set_offer_life(house.model, until, heir)
    yield heir
    set_offer_life(house.model, None)


def test_answers_of_a_deprecated_model_say_so(
    house: LiveHouse, acme: Tenant, successor: str
) -> None:
    alias(acme, "gpt-4o-mini", house.model)
    shown = house.client(acme.secret).models.retrieve(house.model).model_dump()

    for model in (house.model, "gpt-4o-mini"):
        for stream in (False, True):
            headers = raw_answer(house, acme, model, stream=stream).headers
            deprecated_at = datetime.fromtimestamp(int(headers["deprecation"][1:]), UTC)
            sunset_at = parsedate_to_datetime(headers["sunset"])

            assert headers["deprecation"].startswith("@")
            assert deprecated_at <= datetime.now(UTC)
            assert sunset_at.date().isoformat() == shown["shutdown_date"]
            assert headers["link"] == f'</v1/models/{successor}>; rel="successor-version"'
    assert (shown["deprecated"], shown["successor"]) == (True, successor)


def test_other_answers_say_nothing_of_it(house: LiveHouse, acme: Tenant) -> None:
    headers = raw_answer(house, acme, house.model).headers

    assert not {"deprecation", "sunset", "link"} & set(headers)


def test_a_retired_model_is_refused_with_the_name_of_its_successor(
    house: LiveHouse, acme: Tenant
) -> None:
    gone = make_offer(f"org/gone-{uuid4().hex[:8]}:q4", 1, 1, 1)
    alias(acme, "old-name", gone)
    set_offer_life(gone, datetime.now(UTC), house.model)
    client = house.client(acme.secret)

    for model in (gone, "old-name"):
        for ask in (
            lambda model=model: raw_answer(house, acme, model),
            lambda model=model: client.models.retrieve(model),
        ):
            with pytest.raises(openai.NotFoundError) as refusal:
                ask()
            assert refusal.value.code == "model_not_found"
            assert f"Use '{house.model}' instead" in refusal.value.message
    assert not {gone, "old-name"} & {model.id for model in client.models.list()}
    assert books.holds(acme, "voided") == []


def test_a_price_change_in_mid_request_leaves_its_price_alone(
    house: LiveHouse, acme: Tenant
) -> None:
    before = books.quote(house, acme).output_micros_per_mtok
    stream = house.client(acme.secret).chat.completions.with_raw_response.create(
        model=house.model, messages=FRANCE, temperature=0, max_tokens=64, stream=True
    )
    chunks = stream.parse()
    next(iter(chunks))

    set_price(house.model, INTERACTIVE, "output", before * 10, organization_id=acme.organization_id)
    for _ in chunks:
        pass

    receipt = house.receipt(acme, stream.headers["x-request-id"])
    assert receipt["price_micros_per_mtok"]["output"] == before
    assert books.quote(house, acme).output_micros_per_mtok == before * 10
