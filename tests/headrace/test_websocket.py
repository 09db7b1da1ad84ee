"""`WS /v1/stream`: several requests on one socket, cancel, close codes, the same chunks as SSE."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

import tenants.facade
from tests import books
from tests.house import LiveHouse, Tenant, wait_until
from tests.prompts import STORY, chat

FRANCE = chat("What is the capital of France?")
RECEIVE_S = 60


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    return house.new_tenant()


@asynccontextmanager
async def socket(house: LiveHouse, secret: str | None, **options: Any) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    url = house.base_url.replace("http", "ws", 1) + "/stream"
    async with websockets.connect(
        url, additional_headers=headers, proxy=None, **options
    ) as connection:
        yield connection


async def create(connection: ClientConnection, identifier: str, **body: Any) -> None:
    await connection.send(json.dumps({"type": "create", "id": identifier, "body": body}))


async def read_until_ended(
    connection: ClientConnection, *identifiers: str
) -> dict[str, list[dict[str, Any]]]:
    """All events by request id, until each of `identifiers` is done or failed."""
    seen: dict[str, list[dict[str, Any]]] = {identifier: [] for identifier in identifiers}
    waiting = set(identifiers)
    while waiting:
        message = json.loads(await asyncio.wait_for(connection.recv(), RECEIVE_S))
        seen[message["id"]].append(message)
        if message["event"] in ("done", "error"):
            waiting.discard(message["id"])
    return seen


async def read_until_closed(connection: ClientConnection) -> int:
    """The code with which the server closes."""
    with contextlib.suppress(websockets.ConnectionClosed):
        async for _ in connection:
            pass
    assert connection.close_code is not None
    return connection.close_code


def text_of(events: list[dict[str, Any]]) -> str:
    chunks = [event["data"] for event in events if event["event"] == "chunk"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def wrapped() -> Any:
        return await story()

    return asyncio.run(wrapped())


def close_code(house: LiveHouse, secret: str | None, *messages: str, **options: Any) -> int:
    """The code with which the server closes after these messages."""

    async def story() -> int:
        async with socket(house, secret, **options) as connection:
            for message in messages:
                await connection.send(message)
            return await read_until_closed(connection)

    code = run(story)
    assert isinstance(code, int)
    return code


def test_two_requests_share_a_socket_and_each_is_charged(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, acme.secret) as connection:
            body = {"model": house.model, "messages": FRANCE, "temperature": 0}
            await create(connection, "a", **body)
            await create(connection, "b", **body, stream=True, max_tokens=3)
            return await read_until_ended(connection, "a", "b")

    seen = run(story)
    (done_a,) = [event["data"] for event in seen["a"] if event["event"] == "done"]

    assert text_of(seen["a"]) == "The capital of France is Paris."
    assert text_of(seen["b"]) == "The capital of"
    assert done_a["usage"]["completion_tokens"] == 8
    assert done_a["charge_pico"] == house.receipt(acme, done_a["request_id"])["amount_pico"]
    assert len(books.events(acme)) == 2
    assert seen["a"][0]["data"]["object"] == "chat.completion.chunk"


def test_choices_come_as_on_a_stream(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, acme.secret) as connection:
            body = {"model": house.model, "messages": FRANCE, "temperature": 0, "logprobs": True}
            await create(connection, "a", **body, n=2, max_tokens=3)
            await create(connection, "bad", **body, n=0)
            return await read_until_ended(connection, "a", "bad")

    seen = run(story)
    choices = [e["data"]["choices"][0] for e in seen["a"] if e["event"] == "chunk"]

    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(one["delta"].get("content", "") for one in own) == "The capital of"
        assert own[-1]["finish_reason"] == "length"
        assert any(one["logprobs"] for one in own)
    assert seen["bad"][-1]["data"]["error"]["param"] == "n"
    assert len(books.events(acme)) == 1


def test_a_cancelled_request_ends_and_is_charged_for_what_it_generated(
    house: LiveHouse, acme: Tenant
) -> None:
    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, acme.secret) as connection:
            await create(
                connection, "long", model=house.model, messages=STORY, temperature=0, max_tokens=600
            )
            await asyncio.wait_for(connection.recv(), RECEIVE_S)
            await connection.send(json.dumps({"type": "cancel", "id": "long"}))
            return await read_until_ended(connection, "long")

    seen = run(story)
    wait_until(lambda: books.events(acme))
    (event,) = books.events(acme)

    assert seen["long"][-1]["data"]["error"]["code"] == "cancelled"
    assert event["finish_reason"] == "cancelled"
    assert 1 <= event["output_tokens"] < 600


def test_a_closed_socket_cancels_everything_on_it(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> None:
        async with socket(house, acme.secret) as connection:
            for identifier in "ab":
                await create(
                    connection, identifier, model=house.model, messages=STORY, max_tokens=600
                )
            await asyncio.wait_for(connection.recv(), RECEIVE_S)

    run(story)
    wait_until(lambda: not books.holds(acme) and len(books.events(acme)) == 2)

    assert {event["finish_reason"] for event in books.events(acme)} == {"cancelled"}


def test_a_bad_request_is_an_error_and_the_socket_lives_on(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, acme.secret) as connection:
            await create(connection, "bad", model=house.model, messages=[])
            await create(connection, "none", model="gpt-9", messages=FRANCE)
            await create(connection, "good", model=house.model, messages=FRANCE, max_tokens=1)
            return await read_until_ended(connection, "bad", "none", "good")

    seen = run(story)

    assert seen["bad"][-1]["data"]["error"]["param"] == "messages"
    assert seen["none"][-1]["data"]["error"]["code"] == "model_not_found"
    assert seen["good"][-1]["event"] == "done"


def test_a_key_may_come_as_a_subprotocol_and_is_not_echoed(house: LiveHouse, acme: Tenant) -> None:
    async def story() -> str | None:
        async with socket(house, None, subprotocols=["headrace.v1", acme.secret]) as connection:
            await create(connection, "a", model=house.model, messages=FRANCE, max_tokens=1)
            await read_until_ended(connection, "a")
            return connection.subprotocol  # type: ignore[no-any-return]  # the context yields Any

    assert run(story) == "headrace.v1"


def test_a_ticket_opens_one_socket_once(house: LiveHouse, acme: Tenant) -> None:
    with house.http(acme.secret) as client:
        ticket = client.post("/v1/stream/tickets").json()["ticket"]

    async def story() -> dict[str, list[dict[str, Any]]]:
        async with socket(house, None, subprotocols=["headrace.v1", ticket]) as connection:
            await create(connection, "a", model=house.model, messages=FRANCE, max_tokens=1)
            return await read_until_ended(connection, "a")

    assert run(story)["a"][-1]["event"] == "done"
    assert len(books.events(acme)) == 1
    assert close_code(house, None, subprotocols=["headrace.v1", ticket]) == 4401
    with house.http() as client:
        assert client.post("/v1/stream/tickets").status_code == 401


@pytest.mark.parametrize("secret", [None, "wrong"])
def test_without_a_valid_key_the_socket_closes_with_4401(
    house: LiveHouse, secret: str | None
) -> None:
    assert close_code(house, secret) == 4401


def test_a_page_of_another_origin_may_not_open_a_socket(house: LiveHouse, acme: Tenant) -> None:
    assert close_code(house, acme.secret, origin="https://evil.example") == 4403


@pytest.mark.parametrize("message", ["{", "[]", '{"type": "shout", "id": "a"}', '{"id": 5}'])
def test_what_is_no_message_closes_with_4400(house: LiveHouse, acme: Tenant, message: str) -> None:
    assert close_code(house, acme.secret, message) == 4400


def test_a_request_id_in_use_closes_with_4409(house: LiveHouse, acme: Tenant) -> None:
    body = {"model": house.model, "messages": STORY, "max_tokens": 300}
    message = json.dumps({"type": "create", "id": "same", "body": body})

    assert close_code(house, acme.secret, message, message) == 4409
    wait_until(lambda: not books.holds(acme))


def test_a_revoked_key_closes_its_sockets_within_two_seconds(
    house: LiveHouse, acme: Tenant
) -> None:
    async def story() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        async with socket(house, acme.secret) as connection:
            await create(
                connection, "a", model=house.model, messages=STORY, temperature=0, max_tokens=600
            )
            await asyncio.wait_for(connection.recv(), RECEIVE_S)
            await asyncio.to_thread(
                tenants.facade.revoke_key, acme.organization_id, acme.key_id, using="housekeeper"
            )
            revoked_at = loop.time()
            return await read_until_closed(connection), loop.time() - revoked_at

    code, after_s = run(story)
    wait_until(lambda: books.events(acme))

    assert code == 4401
    assert after_s < 2
    assert books.events(acme)[0]["finish_reason"] == "key_revoked"
