"""One key, one run, one charge, one answer: however often and however at once it is asked."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from headrace.errors import ApiError
from headrace.gateway import idempotency
from headrace.gateway.idempotency import checked_key, once
from headrace.gateway.transport.http import (
    ClientGone,
    Message,
    Receive,
    Send,
    encode_headers,
    send_encoded,
    send_part,
    start_response,
)
from tenants.contracts.retention import (
    IdempotencyBodyDiffers,
    IdempotencyLost,
    IdempotencyRunning,
    IdempotencyScope,
)
from tenants.facade import (
    IDEMPOTENT_ANSWER_BYTES_MAX,
    IdempotencyClaim,
    claim_idempotency_key,
    store_idempotent_answer,
    tenant_scope,
)
from tenants.models import IdempotentRequest
from tests.tenants.cast import Tenant, make_tenant

BODY = b'{"model": "m"}'
SAID = b'{"answer": "a secret of the tenant"}'
HASH = b"h" * 32


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant who asks."""
    return make_tenant("acme")


def place(
    tenant: Tenant, key: str = "k", endpoint: str = "/v1/chat/completions"
) -> IdempotencyScope:
    """Where the key counts."""
    return IdempotencyScope(tenant.organization_id, tenant.project_id, endpoint, key)


def rows(tenant: Tenant) -> list[IdempotentRequest]:
    """What is stored."""
    with tenant_scope(tenant.organization_id):
        return list(IdempotentRequest.objects.order_by("id"))


class Spawner:
    """The one thing that `once` wants of a runtime."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """A task that lives on."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task


@dataclass
class Client:
    """Receives an answer; `leaves_after` messages it is gone."""

    messages: list[Message] = field(default_factory=list)
    leaves_after: int | None = None

    async def send(self, message: Message) -> None:
        """One ASGI message."""
        if self.leaves_after is not None and len(self.messages) >= self.leaves_after:
            raise ClientGone
        self.messages.append(message)

    @property
    def status(self) -> int:
        """As it began."""
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        """As they began."""
        return dict(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(message.get("body", b"") for message in self.messages[1:])


@dataclass
class Endpoint:
    """Answers, and counts what it charged."""

    charges: int = 0
    status: int = 200
    charged: bool = True
    answer: bytes = SAID
    streams: bool = False
    gate: asyncio.Event | None = None

    async def __call__(self, receive: Receive, send: Send) -> bool:
        if self.gate is not None:
            await self.gate.wait()
        self.charges += self.charged
        headers = encode_headers({"x-request-id": f"req_{self.charges}", "x-ratelimit-limit": "9"})
        if self.streams:
            head = [(b"content-type", b"text/event-stream; charset=utf-8"), *headers]
            await start_response(send, 200, head)
            for part in (b"data: 1\n\n", b": ka\n\n", b"data: 2\n\n"):
                await send_part(send, part)
            await send_part(send, b"data: [DONE]\n\n", last=True)
        else:
            await send_encoded(send, self.status, self.answer, headers)
        return self.charged


def ask(
    tenant: Tenant, endpoint: Endpoint, body: bytes = BODY, client: Client | None = None
) -> Client:
    """One request under the key."""
    asked = client or Client()
    asyncio.run(once(Spawner(), place(tenant), body, asked.send, endpoint))  # type: ignore[arg-type]  # what a runtime is to it
    return asked


def test_a_repetition_is_told_the_first_answer_and_runs_nothing(acme: Tenant) -> None:
    endpoint = Endpoint()
    first, second = ask(acme, endpoint), ask(acme, endpoint)

    assert endpoint.charges == 1
    assert (second.status, second.body) == (first.status, first.body) == (200, SAID)
    assert second.headers[b"idempotent-replayed"] == b"true"
    assert b"idempotent-replayed" not in first.headers
    assert second.headers[b"x-request-id"] == first.headers[b"x-request-id"] == b"req_1"
    assert b"x-ratelimit-limit" not in second.headers
    assert second.headers[b"content-length"] == b"%d" % len(SAID)


def test_a_stream_is_told_again_as_one_stream_without_keepalives(acme: Tenant) -> None:
    endpoint = Endpoint(streams=True)
    first, second = ask(acme, endpoint), ask(acme, endpoint)

    assert endpoint.charges == 1
    assert b": ka" in first.body
    assert second.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert second.headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in second.headers


def test_of_fifty_at_once_one_runs_and_the_others_are_asked_to_wait(acme: Tenant) -> None:
    endpoint = Endpoint(gate=asyncio.Event())

    async def story() -> list[BaseException | None]:
        runtime = Spawner()
        clients = [Client() for _ in range(50)]
        asks = [
            asyncio.ensure_future(once(runtime, place(acme), BODY, one.send, endpoint))  # type: ignore[arg-type]  # as above
            for one in clients
        ]
        await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
        while sum(one.done() for one in asks) < 49:
            await asyncio.wait(
                [one for one in asks if not one.done()], return_when=asyncio.FIRST_COMPLETED
            )
        assert endpoint.gate is not None
        endpoint.gate.set()
        return await asyncio.gather(*asks, return_exceptions=True)

    outcomes = asyncio.run(story())

    assert endpoint.charges == 1
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, IdempotencyRunning) for outcome in outcomes) == 49
    assert ask(acme, endpoint).headers[b"idempotent-replayed"] == b"true"


def test_another_body_under_the_key_is_refused(acme: Tenant) -> None:
    endpoint = Endpoint()
    ask(acme, endpoint)

    with pytest.raises(IdempotencyBodyDiffers):
        ask(acme, endpoint, b'{"model":  "m"}')
    assert endpoint.charges == 1


def test_a_key_counts_in_its_project_at_its_endpoint(acme: Tenant) -> None:
    claims = [
        claim_idempotency_key(one, HASH)
        for one in (
            place(acme),
            place(acme, endpoint="/v1/embeddings"),
            place(acme, key="K"),
            IdempotencyScope(acme.organization_id, uuid4(), "/v1/chat/completions", "k"),
            place(make_tenant("globex")),
        )
    ]

    assert all(isinstance(claim, IdempotencyClaim) for claim in claims)


def test_what_was_not_charged_is_not_kept(acme: Tenant) -> None:
    refusing = Endpoint(status=429, charged=False, answer=b"{}")
    refused = ask(acme, refusing)
    served = ask(acme, Endpoint())

    assert refused.status == 429
    assert (served.status, served.body) == (200, SAID)
    assert b"idempotent-replayed" not in served.headers


def test_a_client_that_leaves_finds_the_answer_when_it_returns(acme: Tenant) -> None:
    endpoint = Endpoint(streams=True)
    ask(acme, endpoint, client=Client(leaves_after=1))
    returned = ask(acme, endpoint)

    assert endpoint.charges == 1
    assert returned.body.endswith(b"data: [DONE]\n\n")


def test_the_last_byte_goes_out_after_the_answer_is_kept(acme: Tenant) -> None:
    kept: list[int | None] = []

    @dataclass
    class Watching(Client):
        async def send(self, message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                loop = asyncio.get_running_loop()
                [row] = await loop.run_in_executor(None, rows, acme)
                kept.append(row.status)
            await super().send(message)

    ask(acme, Endpoint(), client=Watching())

    assert kept == [200]


def test_a_key_whose_process_died_comes_free_and_the_dead_write_nothing(acme: Tenant) -> None:
    dead = claim_idempotency_key(place(acme), HASH)
    assert isinstance(dead, IdempotencyClaim)
    with pytest.raises(IdempotencyRunning):
        claim_idempotency_key(place(acme), HASH)
    lapse(acme)
    with pytest.raises(IdempotencyBodyDiffers):
        claim_idempotency_key(place(acme), b"x" * 32)
    heir = claim_idempotency_key(place(acme), HASH)

    assert isinstance(heir, IdempotencyClaim)
    with pytest.raises(IdempotencyLost):
        store_idempotent_answer(dead, 200, [], b"late")
    store_idempotent_answer(heir, 200, [], b"in time")


def test_after_a_day_a_key_is_new(acme: Tenant) -> None:
    endpoint = Endpoint()
    ask(acme, endpoint)
    with tenant_scope(acme.organization_id):
        IdempotentRequest.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    ask(acme, endpoint, b"another body")

    assert endpoint.charges == 2


def test_an_answer_too_large_to_keep_is_neither_told_nor_charged_again(acme: Tenant) -> None:
    endpoint = Endpoint(answer=b"x" * (IDEMPOTENT_ANSWER_BYTES_MAX + 1))
    first = ask(acme, endpoint)

    with pytest.raises(ApiError) as refused:
        ask(acme, endpoint)
    assert len(first.body) == len(endpoint.answer)
    assert (refused.value.status, refused.value.should_retry) == (409, False)
    assert endpoint.charges == 1


def test_a_kept_answer_is_sealed(acme: Tenant) -> None:
    ask(acme, Endpoint())
    [row] = rows(acme)

    assert row.answer_sealed is not None
    assert b"secret" not in bytes(row.answer_sealed)


def test_a_long_run_keeps_its_key(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "RENEW_S", 0.01)
    before: list[datetime] = []

    class Slow(Endpoint):
        async def __call__(self, receive: Receive, send: Send) -> bool:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, lapse, acme)
            while (lease := await loop.run_in_executor(None, lease_of, acme)) < datetime.now(UTC):
                before.append(lease)
            return await super().__call__(receive, send)

    ask(acme, Slow())

    assert lease_of(acme) > datetime.now(UTC)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ключ", "\x7f"])
def test_a_key_that_cannot_be_stored_is_refused(key: str) -> None:
    with pytest.raises(ApiError) as refused:
        checked_key(key)
    assert refused.value.status == 400


def lapse(tenant: Tenant) -> None:
    """The leases of the tenant's running requests have run out."""
    with tenant_scope(tenant.organization_id):
        IdempotentRequest.objects.update(lease_expires_at=datetime.now(UTC) - timedelta(seconds=1))


def lease_of(tenant: Tenant) -> datetime:
    """Until when the tenant's one key is taken."""
    [row] = rows(tenant)
    return row.lease_expires_at
