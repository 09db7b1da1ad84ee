"""Every token route x {nobody, a dead key, an admin key, a key without the scope, another's alias}.

These are raw ASGI and need an engine, so they are asked at the port of a running house. A route of
the table that has no request here fails.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
import websockets.sync.client

from billing.facade import create_alias, delete_alias
from headrace.gateway.transport.token_routes import ROUTES
from tenants.contracts import KeyScope, KeySettings
from tenants.facade import (
    archive_project,
    create_key,
    create_project,
    issue_key,
    operator_of,
    revoke_key,
)
from tests.headrace.door import admin_key
from tests.house import LiveHouse, Tenant, wait_until

Json = dict[str, Any]
REQUESTS: dict[str, Callable[[str], Json | None]] = {
    "/v1/chat/completions": lambda model: {
        "model": model,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
    },
    "/v1/completions": lambda model: {"model": model, "prompt": "Hi", "max_tokens": 1},
    "/v1/embeddings": lambda model: {"model": model, "input": "Hi"},
    "/v1/models": lambda _: None,
    "/v1/models/{model}": lambda _: None,
    "/v1/stream/tickets": lambda _: {},
}
SCOPES = {
    "/v1/chat/completions": {KeyScope.CHAT},
    "/v1/completions": {KeyScope.COMPLETIONS},
    "/v1/embeddings": {KeyScope.EMBEDDINGS},
    "/v1/models": {KeyScope.MODELS},
    "/v1/models/{model}": {KeyScope.MODELS},
    "/v1/stream/tickets": {KeyScope.CHAT, KeyScope.BATCHES},
}
WITH_A_MODEL = [route for route in REQUESTS if route not in ("/v1/models", "/v1/stream/tickets")]
every_route = pytest.mark.parametrize("route", REQUESTS)


def ask(
    house: LiveHouse, route: str, secret: str | None, model: str | None = None, **options: Any
) -> httpx.Response:
    model = model or house.model
    method = ROUTES[route.removesuffix("/{model}")][0]
    body = REQUESTS[route](model)
    if body is not None:
        options["json"] = body
    with house.http(secret) as client:
        return client.request(method, route.replace("{model}", model), **options)


def code_of(answer: httpx.Response) -> tuple[int, str | None]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")
    return answer.status_code, error["code"]


def test_every_token_route_is_asked() -> None:
    assert {route.removesuffix("/{model}") for route in REQUESTS} == set(ROUTES)


@every_route
def test_who_has_no_living_key_is_told_one_thing(house: LiveHouse, route: str) -> None:
    tenant = house.new_tenant()
    actor = operator_of(tenant.organization_id)
    revoked = issue_key(tenant.organization_id, tenant.project_id, "r", using="housekeeper")
    revoke_key(tenant.organization_id, revoked.key_id, using="housekeeper")
    soon = datetime.now(UTC) + timedelta(milliseconds=200)
    expired = create_key(actor, tenant.project_id, KeySettings("e", expires_at=soon))
    wait_until(lambda: datetime.now(UTC) > soon)
    unknown = tenant.secret[:3] + tenant.secret[3:-6][::-1] + tenant.secret[-6:]
    answers = [ask(house, route, one) for one in (revoked.secret, expired.secret, unknown)]

    assert [code_of(answer) for answer in answers] == [(401, "invalid_api_key")] * 3
    assert len({answer.text for answer in answers}) == 1
    assert code_of(ask(house, route, None)) == (401, None)
    assert code_of(ask(house, route, None, params={"api_key": tenant.secret})) == (401, None)


@every_route
def test_an_admin_key_infers_nothing(house: LiveHouse, route: str) -> None:
    tenant = house.new_tenant()
    answer = ask(house, route, admin_key(tenant.organization_id))

    assert code_of(answer) == (403, "insufficient_permissions")


@every_route
def test_a_key_does_what_its_scopes_say(house: LiveHouse, route: str) -> None:
    tenant = house.new_tenant()
    actor = operator_of(tenant.organization_id)
    others = frozenset(KeyScope) - SCOPES[route]
    without = create_key(actor, tenant.project_id, KeySettings("w", scopes=others))
    alone = [
        create_key(actor, tenant.project_id, KeySettings("a", scopes=frozenset({one})))
        for one in SCOPES[route]
    ]

    assert code_of(ask(house, route, without.secret)) == (403, "insufficient_permissions")
    assert [ask(house, route, key.secret).status_code for key in alone] == [200] * len(alone)


@every_route
def test_a_key_works_from_its_networks_and_in_a_living_project(
    house: LiveHouse, route: str
) -> None:
    tenant = house.new_tenant()
    actor = operator_of(tenant.organization_id)
    elsewhere = create_key(actor, tenant.project_id, KeySettings("n", cidrs=("192.0.2.0/24",)))
    closing = create_project(tenant.organization_id, "closing", using="housekeeper")
    closed = issue_key(tenant.organization_id, closing, "c", using="housekeeper")
    archive_project(tenant.organization_id, closing, using="housekeeper")
    claimed = {"x-forwarded-for": "192.0.2.7"}

    for secret in (elsewhere.secret, closed.secret):
        answer = ask(house, route, secret, headers=claimed)
        assert code_of(answer) == (403, "insufficient_permissions")


@every_route
def test_a_name_that_is_not_ours_is_not_answered(house: LiveHouse, route: str) -> None:
    tenant = house.new_tenant()
    answer = ask(house, route, tenant.secret, headers={"host": "rebound.example"})

    assert code_of(answer) == (400, "invalid_value")


@pytest.mark.parametrize("route", WITH_A_MODEL)
def test_another_ones_name_for_a_model_is_no_model(house: LiveHouse, route: str) -> None:
    acme, globex = house.new_tenant(), house.new_tenant()
    names = aliases(house, acme, globex)
    answers = {whose: ask(house, route, acme.secret, name) for whose, name in names.items()}

    assert {whose: answer.status_code for whose, answer in answers.items()} == {
        "own": 200,
        "sibling's": 404,
        "foreign": 404,
        "deleted": 404,
    }
    refusals = [answers[one].text.replace(names[one], "") for one in names if one != "own"]
    assert len(set(refusals)) == 1


def aliases(house: LiveHouse, acme: Tenant, globex: Tenant) -> dict[str, str]:
    """A name of acme's project, of its sibling, of globex, and one that is gone."""
    actor = operator_of(acme.organization_id)
    sibling = create_project(acme.organization_id, "sibling", using="housekeeper")
    names = {whose: f"{uuid4().hex[:8]}" for whose in ("own", "sibling's", "foreign", "deleted")}
    create_alias(actor, names["own"], house.model, acme.project_id)
    create_alias(actor, names["sibling's"], house.model, sibling)
    create_alias(operator_of(globex.organization_id), names["foreign"], house.model)
    gone = create_alias(actor, names["deleted"], house.model)
    delete_alias(actor, gone.alias_id)
    return names


def socket_code(house: LiveHouse, secret: str, name: str = "127.0.0.1") -> int:
    """The code with which `/v1/stream` closes, called by this name; 403 for no socket at all."""
    port = house.house.web_port
    try:
        with websockets.sync.client.connect(
            f"ws://{name}:{port}/v1/stream",
            additional_headers={"authorization": f"Bearer {secret}"},
            address=("127.0.0.1", port),
            proxy=None,
        ) as connection:
            connection.recv(timeout=30)
    except websockets.ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else 1006
    except websockets.InvalidStatus as refused:
        return refused.response.status_code
    raise AssertionError("the socket says something before it is asked")


def test_the_socket_is_for_keys_that_may_chat_and_by_our_name(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    actor = operator_of(tenant.organization_id)
    others = frozenset(KeyScope) - {KeyScope.CHAT}
    without = create_key(actor, tenant.project_id, KeySettings("w", scopes=others))

    assert socket_code(house, admin_key(tenant.organization_id)) == 4403
    assert socket_code(house, without.secret) == 4403
    assert socket_code(house, "hr-nonsense") == 4401
    assert socket_code(house, tenant.secret, "rebound.example") == 403
