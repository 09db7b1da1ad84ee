"""The playground's page, and its tickets: whose they are, and which key pays."""

import asyncio
import contextlib
import json
import re
from typing import Any
from uuid import UUID, uuid4

import pytest
import websockets
from django.test import override_settings

import billing.facade
import tenants.facade
from tenants.contracts import KeyKind, KeyScope, Role
from tests import books
from tests.billing.cast import make_offer
from tests.console.engines import report_engine_of
from tests.headrace.door import Door, member_of, new_user
from tests.house import LiveHouse, Tenant, new_tenant, wait_until
from tests.prompts import STORY, chat

MODEL = "mill-for-playing"
RECEIVE_S = 60
FRANCE = "What is the capital of France?"


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Whose playground it is."""
    make_offer(MODEL, 1_000_000, 250_000, 4_000_000)
    return new_tenant()


def member(tenant: Tenant, role: Role = Role.DEVELOPER) -> Door:
    return member_of(tenant.organization_id, role)


def playground_keys(tenant: Tenant) -> list[Any]:
    actor = tenants.facade.operator_of(tenant.organization_id)
    listed = tenants.facade.list_keys(actor, KeyKind.PROJECT)
    return [key for key in listed if key.settings.name == "Playground"]


def ask_ticket(who: Door, tenant: Tenant, project_id: UUID | None = None) -> Any:
    project = str(project_id or tenant.project_id)
    path = f"/console/{tenant.slug}/playground"
    return who.post(path, data={"do": "ticket", "project": project})


def test_the_page_offers_the_models_and_their_prices(acme: Tenant) -> None:
    page = member(acme).get(f"/console/{acme.slug}/playground")

    assert page.status_code == 200
    assert f'<option value="{MODEL}">' in page.text
    started = page.text.index('id="play-about"')
    told = json.loads(
        page.text[page.text.index("{", started) : page.text.index("</script", started)]
    )
    assert told["models"][MODEL] == {
        "input_pico": 1_000_000,
        "cached_pico": 250_000,
        "output_pico": 4_000_000,
        "output_tokens_max": 2048,
        "context_tokens_max": 8192,
    }


def offered(page: Any) -> list[tuple[str, str]]:
    """The models of the list: what is sent, and what is read."""
    return re.findall(r'<option value="([^"]+)">([^<]+)</option>', page.text)


def test_models_that_are_served_now_are_offered_first(acme: Tenant) -> None:
    served, alias = f"zz-{uuid4().hex}", f"zz-alias-{uuid4().hex}"
    make_offer(served, 1_000_000, 250_000, 4_000_000)
    billing.facade.set_alias(tenants.facade.operator_of(acme.organization_id), alias, served)
    report_engine_of(served)

    models = offered(member(acme).get(f"/console/{acme.slug}/playground"))

    away = (MODEL, f"{MODEL}, not served now")
    assert not models[0][1].endswith("not served now")
    assert models.index((served, served)) < models.index(away)
    assert models.index((alias, f"{alias} ({served})")) < models.index(away)


def test_while_nobody_knows_what_is_served_nothing_is_marked(acme: Tenant) -> None:
    who = member(acme)
    with override_settings(REDIS_URL="redis://127.0.0.1:1"):
        models = offered(who.get(f"/console/{acme.slug}/playground"))

    assert (MODEL, MODEL) in models
    assert not any(shown.endswith("not served now") for _, shown in models)


def test_a_ticket_makes_one_key_for_a_project_that_can_only_chat(acme: Tenant) -> None:
    first, second = (ask_ticket(member(acme), acme) for _ in range(2))
    (key,) = playground_keys(acme)

    assert first.status_code == second.status_code == 200
    assert first.headers["cache-control"] == "no-store"
    assert first.json()["ticket"] != second.json()["ticket"]
    assert key.project_id == acme.project_id
    assert key.settings.scopes == {KeyScope.CHAT}


def test_a_revoked_key_is_replaced_at_the_next_use(acme: Tenant) -> None:
    ask_ticket(member(acme), acme)
    (key,) = playground_keys(acme)
    tenants.facade.revoke_key(acme.organization_id, key.key_id, using="housekeeper")

    assert ask_ticket(member(acme), acme).status_code == 200
    assert len(playground_keys(acme)) == 2


def test_there_is_no_ticket_for_a_project_of_others(acme: Tenant) -> None:
    globex = new_tenant()

    assert ask_ticket(member(acme), acme, globex.project_id).status_code == 404
    assert ask_ticket(member(acme), acme, uuid4()).status_code == 404
    assert ask_ticket(member(acme, Role.VIEWER), acme).status_code == 403
    assert playground_keys(acme) == []


def test_without_a_project_the_page_says_what_to_do(acme: Tenant) -> None:
    tenants.facade.archive_project(acme.organization_id, acme.project_id)

    assert "Create a project" in member(acme).get(f"/console/{acme.slug}/playground").text


def cookies(of: Door) -> str:
    """As a browser sends them."""
    return "; ".join(f"{name}={value}" for name, value in of.cookies.items())


def socket(house: LiveHouse, ticket: str, with_cookies: str) -> Any:
    """An open one: a context."""
    return websockets.connect(
        house.root_url.replace("http", "ws") + "/v1/stream",
        subprotocols=["headrace.v1", ticket],  # type: ignore[list-item]  # plain strings
        additional_headers={"cookie": with_cookies},
        proxy=None,
    )


def stream_with(house: LiveHouse, ticket: str, with_cookies: str) -> tuple[int | None, list[Any]]:
    """How a socket with this ticket ends, and what it says to one short request."""

    async def story() -> tuple[int | None, list[Any]]:
        heard: list[Any] = []
        body = {"model": house.model, "messages": chat(FRANCE), "max_tokens": 2}
        async with socket(house, ticket, with_cookies) as connection:
            try:
                await connection.send(json.dumps({"type": "create", "id": "a", "body": body}))
                while not heard or heard[-1]["event"] == "chunk":
                    said = await asyncio.wait_for(connection.recv(), RECEIVE_S)
                    heard.append(json.loads(said))
            except websockets.ConnectionClosed:
                return connection.close_code, heard
        return None, heard

    return asyncio.run(story())


@pytest.mark.long
def test_a_ticket_is_of_use_in_its_persons_session_only(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    owner, other = member(tenant), member(tenant)

    def ticket() -> str:
        return str(ask_ticket(owner, tenant).json()["ticket"])

    code, heard = stream_with(house, ticket(), cookies(owner))
    (event,) = books.events(tenant)
    (key,) = playground_keys(tenant)

    assert code is None
    assert heard[-1]["event"] == "done"
    assert heard[-1]["data"]["charge_pico"] == str(event["charge_pico"])
    receipt = house.receipt(tenant, heard[-1]["data"]["request_id"])
    assert receipt["api_key_id"] == str(key.key_id)
    assert stream_with(house, ticket(), "") == (4401, [])
    assert stream_with(house, ticket(), cookies(other)) == (4401, [])


@pytest.mark.long
def test_a_member_who_is_removed_talks_no_more(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    user_id = new_user()
    tenants.facade.add_member(tenant.organization_id, user_id, Role.DEVELOPER)
    who = Door().sign_in(user_id)
    ticket = ask_ticket(who, tenant).json()["ticket"]

    async def story() -> int | None:
        body = {"model": house.model, "messages": STORY, "max_tokens": 600}
        async with socket(house, ticket, cookies(who)) as connection:
            await connection.send(json.dumps({"type": "create", "id": "a", "body": body}))
            await asyncio.wait_for(connection.recv(), RECEIVE_S)
            operator = tenants.facade.operator_of(tenant.organization_id)
            await asyncio.to_thread(tenants.facade.remove_member, operator, user_id)
            with contextlib.suppress(websockets.ConnectionClosed):
                async with asyncio.timeout(RECEIVE_S):
                    async for _ in connection:
                        pass
        code: int | None = connection.close_code
        return code

    assert asyncio.run(story()) == 4401
    wait_until(lambda: books.events(tenant))
    assert books.events(tenant)[0]["output_tokens"] < 600
