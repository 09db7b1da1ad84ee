"""Idempotency-Key at the token routes: one answer and one charge, whole, streamed or cut off."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from billing.facade import balance, receipt
from headrace.gateway.request_ids import parse_request_id
from tenants.contracts import KeySettings
from tenants.facade import create_key, operator_of
from tests import books
from tests.house import CREDIT_PICO, LiveHouse, Tenant, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """A tenant with a key and money."""
    return house.new_tenant()


def body(house: LiveHouse, **more: Any) -> dict[str, Any]:
    """A short chat."""
    return {
        "model": house.model,
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 8,
        **more,
    }


def spent(tenant: Tenant) -> int:
    """What the tenant has been charged, once nothing is held."""

    def settled() -> int | None:
        now = balance(tenant.organization_id)
        return None if now.held_pico else CREDIT_PICO - now.posted_pico + 1

    return (wait_until(settled) or 1) - 1


def charge_of(tenant: Tenant, answer: httpx.Response) -> int:
    """What the receipt of an answer says."""
    request_id = parse_request_id(answer.headers["x-request-id"])
    assert request_id is not None
    return receipt(tenant.organization_id, request_id).charge_pico


def test_another_key_of_the_project_neither_reads_nor_blocks_it(
    house: LiveHouse, acme: Tenant
) -> None:
    operator = operator_of(acme.organization_id)
    models = frozenset({"another-model"})
    narrow = create_key(operator, acme.project_id, KeySettings("narrow", models=models))
    sibling = create_key(operator, acme.project_id, KeySettings("sibling"))
    headers = {"idempotency-key": "once"}
    answers = [
        house.http(secret).post(CHAT, json=body(house, max_tokens=count), headers=headers)
        for secret, count in ((acme.secret, 8), (narrow.secret, 8), (sibling.secret, 9))
    ]

    assert [answer.status_code for answer in answers] == [200, 404, 200]
    assert [answer for answer in answers if "idempotent-replayed" in answer.headers] == []
    assert len(books.events(acme)) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_retry_gets_the_first_answer_and_pays_nothing(
    house: LiveHouse, acme: Tenant, stream: bool
) -> None:
    client, headers = house.http(acme.secret), {"idempotency-key": "once"}
    asked = body(house, stream=stream)
    first = client.post(CHAT, json=asked, headers=headers)
    second = client.post(CHAT, json=asked, headers=headers)

    assert (first.status_code, second.status_code) == (200, 200)
    assert second.content == first.content
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["content-type"] == first.headers["content-type"]
    assert second.headers["x-request-id"] == first.headers["x-request-id"]
    assert spent(acme) == charge_of(acme, first) > 0


def test_fifty_retries_at_once_are_charged_once(house: LiveHouse, acme: Tenant) -> None:
    headers = {"authorization": f"Bearer {acme.secret}", "idempotency-key": "k"}

    async def story() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            url, asked = house.root_url + CHAT, body(house)
            return await asyncio.gather(
                *(client.post(url, json=asked, headers=headers) for _ in range(50))
            )

    answers = asyncio.run(story())

    served = [answer for answer in answers if answer.status_code == 200]
    waiting = [answer for answer in answers if answer.status_code == 409]
    assert len(served) + len(waiting) == 50
    assert len({answer.content for answer in served}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in served) == 1
    for answer in waiting:
        assert answer.headers["x-should-retry"] == "true"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "idempotency_error"
    assert spent(acme) == charge_of(acme, served[0])


def test_the_stock_client_retries_until_it_has_the_answer(house: LiveHouse, acme: Tenant) -> None:
    with house.client(acme.secret, max_retries=5) as client:
        create: Callable[..., Any] = client.chat.completions.create
        texts = {
            create(**body(house), extra_headers={"Idempotency-Key": "sdk"})
            .choices[0]
            .message.content
            for _ in range(2)
        }

    assert len(texts) == 1


def test_a_client_that_left_finds_the_whole_answer(house: LiveHouse, acme: Tenant) -> None:
    client, headers = house.http(acme.secret), {"idempotency-key": "left"}
    asked = body(house, stream=True, max_tokens=60)
    with client.stream("POST", CHAT, json=asked, headers=headers) as stream:
        next(stream.iter_raw())

    def returned() -> httpx.Response | None:
        answer = client.post(CHAT, json=asked, headers=headers)
        return None if answer.status_code == 409 else answer

    answer = wait_until(returned)
    assert answer is not None

    assert answer.headers["idempotent-replayed"] == "true"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert spent(acme) == charge_of(acme, answer)


def test_a_refused_request_does_not_use_its_key_up(house: LiveHouse, acme: Tenant) -> None:
    client, headers = house.http(acme.secret), {"idempotency-key": "again"}
    refused = client.post(CHAT, json=body(house, model="no-such-model"), headers=headers)
    served = client.post(CHAT, json=body(house), headers=headers)
    other = client.post(CHAT, json=body(house, max_tokens=9), headers=headers)
    bad = client.post(CHAT, json=body(house), headers={"idempotency-key": "x" * 256})

    assert refused.status_code == 404
    assert served.status_code == 200
    assert (other.status_code, other.headers["x-should-retry"]) == (422, "false")
    assert bad.status_code == 400
