"""Prompts and answers are kept for those who ask for it, from every door, and for nobody else."""

from typing import Any
from uuid import UUID

import pytest

import tenants.facade
from headrace.gateway.request_ids import parse_request_id
from tenants.contracts.retention import Exchange as Kept
from tenants.models import Exchange
from tests.headrace.test_websocket import create, read_until_ended, run, socket
from tests.house import LiveHouse, Tenant, wait_until

MESSAGES = [{"role": "user", "content": "Say something."}]


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """A tenant that keeps prompts for three days."""
    tenant = house.new_tenant()
    tenants.facade.update_organization(
        tenants.facade.operator_of(tenant.organization_id), prompts_kept_days=3
    )
    return tenant


@pytest.fixture
def globex(house: LiveHouse) -> Tenant:
    """A tenant that keeps none."""
    return house.new_tenant()


def kept(tenant: Tenant, request_id: str) -> Kept:
    """What is kept of a request, once it is."""
    parsed = parse_request_id(request_id)
    assert isinstance(parsed, UUID)
    wait_until(lambda: Exchange.objects.using("housekeeper").filter(id=parsed).exists())
    return tenants.facade.read_exchange(tenants.facade.operator_of(tenant.organization_id), parsed)


def is_anything_kept(tenant: Tenant) -> bool:
    """Whether there is any prompt of the tenant."""
    rows = Exchange.objects.using("housekeeper")
    return rows.filter(organization_id=tenant.organization_id).exists()


@pytest.mark.parametrize("stream", [False, True])
def test_an_http_requests_prompt_and_answer_are_kept(
    house: LiveHouse, acme: Tenant, globex: Tenant, stream: bool
) -> None:
    body = {"model": house.model, "messages": MESSAGES, "max_tokens": 8, "stream": stream}
    other = house.http(globex.secret).post("/v1/chat/completions", json=body)
    answer = house.http(acme.secret).post("/v1/chat/completions", json=body)
    refused = house.http(acme.secret).post("/v1/chat/completions", json=body | {"model": "none"})

    exchange = kept(acme, answer.headers["x-request-id"])
    assert (answer.status_code, other.status_code, refused.status_code) == (200, 200, 404)
    assert "Say something." in exchange.prompt
    assert exchange.answer == answer.text.removesuffix("data: [DONE]\n\n")
    assert (exchange.expires_at - exchange.created_at).days == 3
    assert (
        Exchange.objects.using("housekeeper").filter(organization_id=acme.organization_id).count()
        == 1
    )
    assert not is_anything_kept(globex)


def test_a_sockets_prompt_and_answer_are_kept(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, acme.secret) as connection:
            await create(connection, "a", model=house.model, messages=MESSAGES, max_tokens=8)
            return await read_until_ended(connection, "a")

    events = run(story)["a"]
    exchange = kept(acme, events[-1]["data"]["request_id"])

    said = "".join(
        choice["delta"].get("content") or ""
        for event in events
        if event["event"] == "chunk"
        for choice in event["data"]["choices"]
    )
    assert said
    assert "Say something." in exchange.prompt
    assert exchange.answer.count("data: ") == sum(event["event"] == "chunk" for event in events)
