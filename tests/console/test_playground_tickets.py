"""Tickets of the playground that were put by, at the door of sockets."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import redis.asyncio
from asgiref.testing import ApplicationCommunicator
from django.conf import settings

import tenants.facade
from headrace.asgi import Application
from headrace.gateway.watched_sittings import WatchedSittings
from tenants.contracts import Role
from tests.headrace.door import Door, new_user
from tests.house import Tenant, new_tenant

WAIT_S = 20


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Whose playground it is."""
    return new_tenant()


def _person(tenant: Tenant) -> tuple[UUID, Door]:
    user_id = new_user()
    tenants.facade.add_member(tenant.organization_id, user_id, Role.DEVELOPER)
    return user_id, Door().sign_in(user_id)


def _ticket(who: Door, tenant: Tenant) -> str:
    data = {"do": "ticket", "project": str(tenant.project_id)}
    answer = who.post(f"/console/{tenant.slug}/playground", data=data)
    assert answer.status_code == 200
    return str(answer.json()["ticket"])


def _opened(who: Door, ticket: str) -> int | None:
    """The close code of a refusal; None for a socket that serves."""

    async def story() -> int | None:
        application = Application()
        connection = redis.asyncio.Redis.from_url(settings.REDIS_URL)
        runtime: Any = SimpleNamespace(
            draining=False, redis=connection, sittings=WatchedSittings(), watched_keys={}
        )
        application.runtime = runtime
        cookies = "; ".join(f"{name}={value}" for name, value in who.cookies.items())
        make: Any = ApplicationCommunicator  # it has no types
        talk = make(
            application,
            {
                "type": "websocket",
                "path": "/v1/stream",
                "query_string": b"",
                "headers": [(b"host", b"127.0.0.1"), (b"cookie", cookies.encode())],
                "subprotocols": ["headrace.v1", ticket],
                "client": ("127.0.0.1", 1),
            },
        )
        await talk.send_input({"type": "websocket.connect"})
        assert (await talk.receive_output(timeout=WAIT_S))["type"] == "websocket.accept"
        code = None
        if not runtime.watched_keys:
            code = (await talk.receive_output(timeout=WAIT_S))["code"]
        await talk.send_input({"type": "websocket.disconnect", "code": 1001})
        await talk.wait(timeout=WAIT_S)
        await connection.aclose()
        return code

    return asyncio.run(story())


def test_a_ticket_that_was_put_by_opens_a_socket_of_a_member(acme: Tenant) -> None:
    _, who = _person(acme)

    assert _opened(who, _ticket(who, acme)) is None


@pytest.mark.parametrize("act", ["removed", "demoted"])
def test_a_ticket_is_of_no_use_to_who_has_lost_the_right(acme: Tenant, act: str) -> None:
    user_id, who = _person(acme)
    ticket = _ticket(who, acme)
    operator = tenants.facade.operator_of(acme.organization_id)
    acts: dict[str, Callable[[], object]] = {
        "removed": lambda: tenants.facade.remove_member(operator, user_id),
        "demoted": lambda: tenants.facade.change_role(operator, user_id, Role.VIEWER),
    }
    acts[act]()

    assert _opened(who, ticket) == 4401
