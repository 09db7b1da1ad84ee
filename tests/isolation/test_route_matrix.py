"""Every route x {own, sibling project's, another organization's, deleted} x everybody.

The list of routes is read off Django's URLconf, the table of token routes and Channels' routing;
what routes.py does not list fails here. Requests go through the web process's own ASGI function for
REST, in this process.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver

import tenants.facade
from headrace.asgi import application
from headrace.gateway.transport.token_routes import ROUTES, is_ours
from headrace.management_api.base import ActingView
from tenants.contracts import Permission, Role
from tenants.facade import ROLE_PERMISSIONS
from tests.headrace import door as doors
from tests.isolation.matrix import (
    FORBIDDEN_FIELDS,
    ORGANIZATION_KEY,
    PERSON,
    PROJECT_KEY,
    SOCKETS,
    TENANT,
    TOKEN_ROUTES,
    UNLISTED,
    Act,
    Arguments,
    Row,
)
from tests.isolation.routes import ROWS
from tests.isolation.sides import Side, both, make_side

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
CONVERTER = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")
pytestmark = pytest.mark.usefixtures("django_database")


def urlconf(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every route of Django's, with its view."""
    for entry in (resolver or get_resolver()).url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from urlconf(entry, route)
        else:
            assert isinstance(entry, URLPattern)
            yield route, entry.callback


def is_unlisted(route: str) -> bool:
    return any(route.startswith(beginning) for beginning in UNLISTED)


VIEWS = {route: callback for route, callback in urlconf() if not is_unlisted(route)}
CASES = [(route, method) for route, row in ROWS.items() for method in row.acts if route in VIEWS]


def methods_of(route: str) -> set[str]:
    view = VIEWS[route].view_class
    return {method for method in METHODS if hasattr(view, method.lower())}


def url(route: str, arguments: Mapping[str, object]) -> str:
    return "/" + CONVERTER.sub(lambda found: str(arguments[found["name"]]), route)


def send(
    caller: doors.Door,
    route: str,
    method: str,
    arguments: Mapping[str, object],
    body: dict[str, Any] | None,
    **options: Any,
) -> httpx.Response:
    act = ROWS[route].acts[method]
    path = url(route, arguments) + (f"?{act.query}" if act.query else "")
    if act.file is not None:
        options |= {"files": {"file": act.file}, "data": body or {}}
    elif body is not None:
        options["json"] = body
    options["headers"] = {**act.headers, **options.get("headers", {})}
    return caller.request(method, path, **options)


def body_of(act: Act, side: Side, arguments: Arguments) -> dict[str, Any] | None:
    return act.body(side, arguments) if callable(act.body) else act.body


def in_path(row: Row, side: Side, arguments: Arguments) -> dict[str, object]:
    return {**arguments, "organization_id": side.organization_id}


def callers(row: Row, side: Side) -> list[doors.Door]:
    """Those who get what is theirs."""
    return {
        TENANT: [side.owner, side.admin],
        ORGANIZATION_KEY: [side.admin],
        PROJECT_KEY: [side.project],
        PERSON: [side.owner],
    }[row.door]


def check_refused(answer: httpx.Response, status: int) -> None:
    """The status, in the house's shape and without a word too many."""
    assert answer.status_code == status, (answer.request.url, answer.status_code, answer.text)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    assert answer.headers["x-request-id"].startswith("req_")


def test_every_route_is_in_the_matrix() -> None:
    sockets = {str(entry.pattern) for entry in application.socket_routes}

    assert sorted(VIEWS) == sorted(ROWS)
    assert set(ROUTES) == TOKEN_ROUTES
    assert sockets == SOCKETS


@pytest.mark.parametrize("route", sorted(set(ROWS) & set(VIEWS)))
def test_every_method_of_a_route_is_in_the_matrix(route: str) -> None:
    assert set(ROWS[route].acts) == methods_of(route)


def test_the_web_process_leaves_to_django_what_is_djangos() -> None:
    paths = [f"/{CONVERTER.sub('x', route)}" for route in VIEWS]

    assert [path for path in paths if is_ours(path)] == []
    assert all(is_ours(path) for path in ROUTES)


@pytest.mark.parametrize("beginning", UNLISTED)
def test_no_reason_is_given_for_nothing(beginning: str) -> None:
    assert any(route.startswith(beginning) for route, _ in urlconf())


@pytest.mark.parametrize(("route", "method"), CASES)
def test_its_owner_gets_it_and_nothing_of_others(route: str, method: str) -> None:
    acme, globex = both()
    row = ROWS[route]
    act = row.acts[method]
    for caller in callers(row, acme):
        arguments = row.own(acme)
        body = body_of(act, acme, arguments)
        answer = send(caller, route, method, in_path(row, acme, arguments), body)

        assert answer.status_code == act.status, (route, answer.status_code, answer.text)
        assert answer.headers["x-request-id"].startswith("req_")
        check_says_nothing_of_others(answer, globex)


def check_says_nothing_of_others(answer: httpx.Response, other: Side) -> None:
    hidden = ["secret_hash", "password", settings.SECRET_KEY, str(settings.ENGINE_SOCKET)]
    ids = [other.organization_id, other.project_id, other.key_id, *other.users.values()]
    for text in [*hidden, *map(str, ids)]:
        assert text not in answer.text, text


@pytest.mark.parametrize(("route", "method"), CASES)
def test_what_is_not_the_callers_is_not_there(route: str, method: str) -> None:
    acme, globex = both()
    row = ROWS[route]
    act = row.acts[method]
    wrong: list[dict[str, object]] = []
    if row.door is TENANT:
        wrong.append(in_path(row, globex, row.own(globex)))
        wrong.append({**row.own(acme), "organization_id": uuid4()})
    if row.own(acme):
        wrong.append(in_path(row, acme, row.own(globex)))
        wrong.append(in_path(row, acme, unknown(route, row.own(acme))))
    makers = [make for make in (row.deleted, row.sibling) if make is not None]
    wrong.extend(in_path(row, acme, make(acme)) for make in makers)
    for arguments in wrong:
        body = body_of(act, acme, arguments)
        for caller in callers(row, acme):
            check_refused(send(caller, route, method, arguments, body), 404)
    if row.door is PROJECT_KEY and row.own(acme):
        arguments = in_path(row, acme, row.own(acme))
        body = body_of(act, acme, arguments)
        check_refused(send(acme.sibling, route, method, arguments, body), 404)


def unknown(route: str, arguments: Arguments) -> Arguments:
    """The same path with the last object's id nobody's."""
    last = [found["name"] for found in CONVERTER.finditer(route)][-1]
    strange: object = uuid4() if isinstance(arguments[last], UUID) else f"{uuid4().hex}"
    return {**arguments, last: strange}


def permission_of(route: str, method: str) -> Permission | None:
    view = VIEWS[route].view_class
    return view.permissions[method] if issubclass(view, ActingView) else None


@pytest.mark.parametrize(("route", "method"), CASES)
def test_only_who_may_does(route: str, method: str) -> None:
    acme, _ = both()
    row = ROWS[route]
    act = row.acts[method]
    arguments = in_path(row, acme, row.own(acme))
    body = body_of(act, acme, arguments)

    def refused(caller: doors.Door, status: int, **options: Any) -> None:
        check_refused(send(caller, route, method, arguments, body, **options), status)

    refused(doors.Door(), 401)
    refused(doors.Door("hr-nonsense"), 401)
    if row.door is not PROJECT_KEY:
        refused(acme.project, 403)
    if row.door in (TENANT, PERSON) and method != "GET":
        refused(acme.owner, 403, headers={"x-csrftoken": "0" * 32})
    if row.door is ORGANIZATION_KEY:
        refused(acme.owner, 401)
    needed = permission_of(route, method)
    if needed is None:
        return
    powerless = doors.Door(powerless_key(acme, needed))
    refused(powerless, 403)
    if method in VIEWS[route].view_class.sensitive and row.door is TENANT:
        answer = send(acme.long_ago, route, method, arguments, body)
        assert answer.json()["error"]["code"] == "reauthentication_required"
    if row.door is TENANT:
        for role in Role:
            if needed not in ROLE_PERMISSIONS[role]:
                refused(acme.members[role], 403)


KEYS: dict[tuple[UUID, Permission], str] = {}


TENANTS = "api/v1/organizations/<uuid:organization_id>"
HARMLESS = {
    ("POST", f"{TENANTS}/projects"),
    ("POST", f"{TENANTS}/service_accounts"),
    ("POST", f"{TENANTS}/aliases"),
    ("PATCH", f"{TENANTS}/aliases/<uuid:alias_id>"),
    ("POST", f"{TENANTS}/webhooks/<uuid:webhook_id>/test"),
    ("POST", f"{TENANTS}/webhook_deliveries/<uuid:delivery_id>/replay"),
    ("POST", f"{TENANTS}/projects/<uuid:project_id>/archive"),
    ("POST", f"{TENANTS}/keys/<uuid:key_id>/revoke"),
}
"""What a session may write however old: it ends things, or makes some that open nothing."""


def test_whatever_a_thief_could_gain_by_wants_a_recent_sign_in() -> None:
    writes = {
        (method, route)
        for route, method in CASES
        if ROWS[route].door is TENANT and method not in ("GET", "DELETE")
    }
    sensitive = {
        (method, route) for method, route in writes if method in VIEWS[route].view_class.sensitive
    }

    assert writes - sensitive == HARMLESS


def powerless_key(side: Side, lacking: Permission) -> str:
    """An admin key with every other permission."""
    at = (side.organization_id, lacking)
    if at not in KEYS:
        KEYS[at] = doors.admin_key(side.organization_id, *(set(Permission) - {lacking}))
    return KEYS[at]


@pytest.mark.parametrize(("route", "method"), CASES)
def test_a_role_that_may_is_let_through(route: str, method: str) -> None:
    needed = permission_of(route, method)
    if needed is None or ROWS[route].door is not TENANT:
        return
    acme, _ = both()
    row = ROWS[route]
    act = row.acts[method]
    for role in (Role.ADMIN, Role.DEVELOPER, Role.BILLING, Role.VIEWER):
        if needed in ROLE_PERMISSIONS[role]:
            arguments = row.own(acme)
            body = body_of(act, acme, arguments)
            answer = send(acme.members[role], route, method, in_path(row, acme, arguments), body)

            assert answer.status_code == act.status, (role, answer.status_code, answer.text)


@cache
def strict() -> Side:
    """An organization that demands a second factor; its people have none."""
    side = make_side("strict")
    demanding = replace(side.actor, has_second_factor=True)
    tenants.facade.update_organization(demanding, second_factor_required=True)
    return side


@pytest.mark.parametrize(
    ("route", "method"), [case for case in CASES if ROWS[case[0]].door is TENANT]
)
def test_without_a_demanded_second_factor_no_route_opens(route: str, method: str) -> None:
    row = ROWS[route]
    act = row.acts[method]
    arguments = row.own(strict())
    body = body_of(act, strict(), arguments)
    path = in_path(row, strict(), arguments)
    for member in (strict().owner, strict().members[Role.VIEWER]):
        answer = send(member, route, method, path, body)

        check_refused(answer, 403)
        assert answer.json()["error"]["code"] == "second_factor_required"
    assert send(strict().admin, route, method, path, body).status_code == act.status


WRITES = [
    (route, method)
    for route, method in CASES
    if ROWS[route].acts[method].body is not None and method != "GET"
]


@pytest.mark.parametrize(("route", "method"), WRITES)
def test_no_body_sets_what_is_ours_to_set(route: str, method: str) -> None:
    acme, _ = both()
    row = ROWS[route]
    arguments = row.own(acme)
    body = body_of(row.acts[method], acme, arguments)
    assert body is not None
    caller = callers(row, acme)[0]
    for name in FORBIDDEN_FIELDS:
        if name in row.takes or name in body:
            continue
        answer = send(caller, route, method, in_path(row, acme, arguments), {**body, name: "1"})

        check_refused(answer, 400)
        assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize(
    "route", sorted(route for route, row in ROWS.items() if "GET" in row.acts and route in VIEWS)
)
def test_a_list_is_bounded(route: str) -> None:
    acme, _ = both()
    row = ROWS[route]
    arguments = in_path(row, acme, row.own(acme))
    caller = callers(row, acme)[0]
    answer = send(caller, route, "GET", arguments, None)
    if not answer.headers["content-type"].startswith("application/json"):
        return
    whole = json.loads(answer.text)
    if "has_more" not in whole or "last_id" not in whole:
        return
    assert len(whole["data"]) <= row.limit_max
    for limit in (str(row.limit_max + 1), "0", "-1", "many"):
        check_refused(caller.get(f"{url(route, arguments)}?limit={limit}"), 400)
