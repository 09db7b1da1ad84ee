"""`WS /api/v1/summaries/{id}/progress`, through the web process's own ASGI application."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest
import redis.asyncio
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import override_settings

import batch_jobs.facade
import tenants.facade
from headrace.asgi import Application
from headrace.gateway.database import in_database
from headrace.gateway.watched_sittings import WatchedSittings
from tenants.contracts import KeyScope, KeySettings
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import (
    SummaryTenant,
    answer,
    make_summary_tenant,
    tend_now,
)

WAIT_S = 20
CLOSED = "websocket.close"
SUBPROTOCOL = "headrace.v1"


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose jobs they are."""
    with selling(MODEL), override_settings(PROGRESS_S=0.05):
        yield make_summary_tenant("acme")


class House:
    """The web process's application, without an engine: sockets that follow jobs need none."""

    def __init__(self) -> None:
        self.application = Application()
        self.runtime = SimpleNamespace(
            watched_keys={},
            sittings=WatchedSittings(),
            draining=False,
            redis=redis.asyncio.Redis.from_url(settings.REDIS_URL),
        )
        self.application.runtime = self.runtime  # type: ignore[assignment]  # all that is asked

    @property
    def feeds(self) -> Any:
        """The jobs that are looked at."""
        return self.application.feeds

    async def socket(self, summary_id: str, secret: str | None, *subprotocols: str) -> "Socket":
        """One that was accepted."""
        make: Any = ApplicationCommunicator  # it has no types
        socket = Socket(make(self.application, self.scope(summary_id, secret, *subprotocols)))
        await socket.talk.send_input({"type": "websocket.connect"})
        opened = await socket.talk.receive_output(timeout=WAIT_S)
        assert opened["type"] == "websocket.accept"
        socket.subprotocol = opened.get("subprotocol")
        return socket

    async def ticket(self, secret: str) -> str:
        """A fresh one for this key."""
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=cast("Any", self.application)),
            base_url="http://127.0.0.1",
            headers={"authorization": f"Bearer {secret}"},
        ) as client:
            answered = await client.post("/v1/stream/tickets")
        assert answered.status_code == 200, answered.text
        ticket: str = answered.json()["ticket"]
        return ticket

    async def with_ticket(self, summary_id: str, ticket: str) -> "Socket":
        """A socket that was accepted, of who shows a ticket."""
        return await self.socket(summary_id, None, SUBPROTOCOL, ticket)

    def scope(self, summary_id: str, secret: str | None, *subprotocols: str) -> dict[str, Any]:
        """ASGI's of such a socket."""
        headers = [(b"host", b"127.0.0.1")]
        if secret:
            headers.append((b"authorization", f"Bearer {secret}".encode()))
        return {
            "type": "websocket",
            "path": f"/api/v1/summaries/{summary_id}/progress",
            "query_string": b"",
            "headers": headers,
            "subprotocols": list(subprotocols),
            "client": ("127.0.0.1", 1),
        }


class Socket:
    """A client of one socket."""

    def __init__(self, talk: Any) -> None:
        self.talk = talk
        self.subprotocol: str | None = None

    async def leave(self) -> None:
        """The client closes."""
        await self.talk.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.talk.wait(timeout=WAIT_S)


async def told(socket: Socket) -> dict[str, Any]:
    """The next message."""
    shown: dict[str, Any] = json.loads((await socket.talk.receive_output(timeout=WAIT_S))["text"])
    return shown


async def closed_with(socket: Socket) -> int:
    """The code with which it is closed, after whatever is told before."""
    while (event := await socket.talk.receive_output(timeout=WAIT_S))["type"] != CLOSED:
        pass
    await socket.leave()
    code: int = event["code"]
    return code


def close_code(summary_id: str, secret: str | None) -> int:
    """With what a fresh house closes such a socket."""

    async def story(house: House) -> int:
        return await closed_with(await house.socket(summary_id, secret))

    code = run(story)
    assert isinstance(code, int)
    return code


def run(story: Callable[[House], Awaitable[Any]]) -> Any:
    async def wrapped() -> Any:
        house = House()
        try:
            return await story(house)
        finally:
            await house.runtime.redis.aclose()

    return asyncio.run(wrapped())


def test_a_job_is_followed_to_its_end(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b")

    async def story(house: House) -> list[dict[str, Any]]:
        socket = await house.socket(summary_id, acme.tenant.secret)
        seen = [await told(socket)]
        await in_database(answer, summary_id, "a")
        seen.append(await told(socket))
        await in_database(answer, summary_id, "b")
        await in_database(tend_now)
        while seen[-1]["status"] != "completed":
            seen.append(await told(socket))
        assert await closed_with(socket) == 1000
        assert house.runtime.watched_keys == {}
        return seen

    seen = run(story)

    assert seen[0]["documents"]["completed"] == 0
    assert seen[1]["documents"]["completed"] == 1
    assert seen[-1] == acme.read(summary_id)


def test_an_ended_job_is_told_once(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    answer(summary_id, "a")
    tend_now()

    async def story(house: House) -> dict[str, Any]:
        socket = await house.socket(summary_id, acme.tenant.secret)
        message = await told(socket)
        assert (await socket.talk.receive_output(timeout=WAIT_S))["code"] == 1000
        await socket.leave()
        return message

    assert run(story)["status"] == "completed"


def test_all_who_follow_a_job_share_one_look_at_it(acme: SummaryTenant) -> None:
    summary_id = acme.ready("a")
    job_id = job_uuid(summary_id)

    async def story(house: House) -> list[int]:
        sockets = [await house.socket(summary_id, acme.tenant.secret) for _ in range(8)]
        assert [(await told(socket))["status"] for socket in sockets] == ["ready"] * 8
        assert len(house.feeds) == 1
        await in_database(batch_jobs.facade.start_summary, acme.owner, job_id)
        assert [(await told(socket))["status"] for socket in sockets] == ["in_progress"] * 8
        await in_database(batch_jobs.facade.cancel_summary, acme.owner, job_id)
        for _ in range(2):
            await in_database(tend_now)
        codes = [await closed_with(socket) for socket in sockets]
        assert len(house.feeds) == 0
        return codes

    assert run(story) == [1000] * 8


def test_nobody_follows_what_is_not_theirs(acme: SummaryTenant) -> None:
    globex = make_summary_tenant("globex")
    organization_id = acme.owner.organization_id
    project_id = tenants.facade.create_project(organization_id, "sibling", using="housekeeper")
    sibling = tenants.facade.issue_key(organization_id, project_id, "s", using="housekeeper")
    summary_id = acme.running("a")

    assert close_code(summary_id, globex.tenant.secret) == 4404
    assert close_code(summary_id, sibling.secret) == 4404
    assert close_code(f"summary_{uuid4().hex}", acme.tenant.secret) == 4404
    assert close_code("nonsense", acme.tenant.secret) == 4404


def test_nobody_follows_without_a_key_that_may(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    owner = acme.owner
    chat_only = tenants.facade.create_key(
        tenants.facade.operator_of(owner.organization_id),
        owner.project_id,
        KeySettings(name="chat", scopes=frozenset({KeyScope.CHAT})),
    )

    assert close_code(summary_id, None) == 4401
    assert close_code(summary_id, "hr-nonsense") == 4401
    assert close_code(summary_id, chat_only.secret) == 4403


def test_a_key_may_be_shown_as_a_subprotocol(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> tuple[dict[str, Any], str | None]:
        socket = await house.socket(summary_id, None, SUBPROTOCOL, acme.tenant.secret)
        message = await told(socket)
        await socket.leave()
        return message, socket.subprotocol

    message, subprotocol = run(story)

    assert message["id"] == summary_id
    assert subprotocol == SUBPROTOCOL


def test_a_ticket_follows_a_job_once(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> tuple[dict[str, Any], str | None, int]:
        ticket = await house.ticket(acme.tenant.secret)
        socket = await house.with_ticket(summary_id, ticket)
        message = await told(socket)
        again = await closed_with(await house.with_ticket(summary_id, ticket))
        await socket.leave()
        return message, socket.subprotocol, again

    message, subprotocol, again = run(story)

    assert message == acme.read(summary_id) | {"progress": message["progress"]}
    assert subprotocol == SUBPROTOCOL, "the ticket is not echoed"
    assert again == 4401


def test_of_many_that_show_one_ticket_at_once_one_follows(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> list[int]:
        ticket = await house.ticket(acme.tenant.secret)
        opening = [house.with_ticket(summary_id, ticket) for _ in range(8)]
        sockets = await asyncio.gather(*opening)
        house.runtime.draining = True
        return [await closed_with(socket) for socket in sockets]

    assert sorted(run(story)) == [4401] * 7 + [4503]


def test_a_ticket_follows_nothing_that_is_not_its_project_s(acme: SummaryTenant) -> None:
    globex = make_summary_tenant("globex")
    organization_id = acme.owner.organization_id
    project_id = tenants.facade.create_project(organization_id, "sibling", using="housekeeper")
    sibling = tenants.facade.issue_key(organization_id, project_id, "s", using="housekeeper")
    summary_id, other_id = acme.running("a"), globex.running("b")

    async def story(house: House) -> tuple[int, int, int]:
        stranger = await house.ticket(globex.tenant.secret)
        refused = await closed_with(await house.with_ticket(summary_id, stranger))
        used_up = await closed_with(await house.with_ticket(other_id, stranger))
        neighbour = await house.ticket(sibling.secret)
        beside = await closed_with(await house.with_ticket(summary_id, neighbour))
        return refused, used_up, beside

    assert run(story) == (4404, 4401, 4404)


def test_a_ticket_may_no_more_than_its_key(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    owner = acme.owner
    chat_only = tenants.facade.create_key(
        tenants.facade.operator_of(owner.organization_id),
        owner.project_id,
        KeySettings(name="chat", scopes=frozenset({KeyScope.CHAT})),
    )

    async def story(house: House) -> tuple[int, int]:
        ticket = await house.ticket(chat_only.secret)
        refused = await closed_with(await house.with_ticket(summary_id, ticket))
        made_up = await closed_with(await house.with_ticket(summary_id, "ticket.made-up"))
        return refused, made_up

    assert run(story) == (4403, 4401)


@override_settings(WEBSOCKETS_PER_KEY_MAX=2)
def test_a_key_has_so_many_sockets(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> int:
        first, second = [await house.socket(summary_id, acme.tenant.secret) for _ in range(2)]
        await told(first)
        await told(second)
        refused = await closed_with(await house.socket(summary_id, acme.tenant.secret))
        await first.leave()
        again = await house.socket(summary_id, acme.tenant.secret)
        assert (await told(again))["id"] == summary_id
        for socket in (second, again):
            await socket.leave()
        return refused

    assert run(story) == 4429


@override_settings(WEBSOCKETS_PER_KEY_MAX=2)
def test_handshakes_side_by_side_get_no_more_than_a_keys_sockets(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> list[int]:
        opening = [house.socket(summary_id, acme.tenant.secret) for _ in range(6)]
        sockets = await asyncio.gather(*opening)
        house.runtime.draining = True
        return [await closed_with(socket) for socket in sockets]

    assert sorted(run(story)) == [4429] * 4 + [4503] * 2


def test_a_handshake_that_fails_keeps_no_place(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> int:
        scope = house.scope(summary_id, acme.tenant.secret)
        events = [{"type": "websocket.connect"}]
        places = []

        async def receive() -> Any:
            return events.pop()

        async def gone(message: Any) -> None:
            places.append(len(house.runtime.watched_keys))
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await house.application(scope, receive, gone)
        assert places == [1]
        return len(house.runtime.watched_keys)

    assert run(story) == 0


def test_a_revoked_key_follows_no_more(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> int:
        socket = await house.socket(summary_id, acme.tenant.secret)
        await told(socket)
        ((_, close),) = house.runtime.watched_keys.values()
        close()
        return await closed_with(socket)

    assert run(story) == 4401


def test_a_house_that_shuts_down_says_so(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")

    async def story(house: House) -> int:
        socket = await house.socket(summary_id, acme.tenant.secret)
        await told(socket)
        house.runtime.draining = True
        return await closed_with(socket)

    assert run(story) == 4503


def job_uuid(summary_id: str) -> UUID:
    return UUID(summary_id.removeprefix("summary_"))
