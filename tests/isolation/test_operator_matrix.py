"""Every page of the operator x {stranger, member, staff without a second factor, operator, Host}.

The list is read off the URLconf: a route that is not listed here fails.
"""

from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver

from headrace.gateway.request_ids import public_request_id
from headrace.operator_console.pages import OperatorView
from tests.billing.cast import make_tenant
from tests.console.operators import new_staff, operator
from tests.headrace.door import Door
from tests.isolation.matrix import Arguments
from tests.isolation.sides import both
from tests.isolation.test_route_matrix import CONVERTER, urlconf

PREFIX = "operator/"
QUERIES_MAX = 40
pytestmark = pytest.mark.usefixtures("django_database")

VIEWS: Mapping[str, type[OperatorView]] = {
    route.removeprefix(PREFIX): callback.view_class
    for route, callback in urlconf(get_resolver())
    if route.startswith(PREFIX)
}


def nothing() -> Arguments:
    return {}


def tenant() -> Arguments:
    return {"organization_id": both()[0].organization_id}


def request() -> Arguments:
    spender = make_tenant()
    held = spender.held()
    return {
        "organization_id": spender.organization_id,
        "request_id": public_request_id(held.request_id),
    }


def order() -> Arguments:
    caller = Door().sign_in(new_staff())
    path = f"/operator/tenants/{both()[0].organization_id}"
    fields = {"do": "credit_limit", "limit": "1", "order_id": str(uuid4())}
    assert caller.post(path, data=fields).status_code == 303
    return {"order_id": fields["order_id"]}


ROUTES: Mapping[str, Callable[[], Arguments]] = {
    "": nothing,
    "models": nothing,
    "models/prices": nothing,
    "tenants": nothing,
    "tenants/<uuid:organization_id>": tenant,
    "money": nothing,
    "system": nothing,
    "orders/<uuid:order_id>": order,
    "tenants/<uuid:organization_id>/requests/<str:request_id>": request,
}
"""Each with arguments of something that is there."""


def address(route: str, arguments: Arguments | None = None) -> str:
    named = ROUTES[route]() if arguments is None else arguments
    return f"/{PREFIX}" + CONVERTER.sub(lambda found: str(named[found["name"]]), route)


def test_every_page_of_the_operator_is_listed_and_is_for_staff() -> None:
    assert sorted(VIEWS) == sorted(ROUTES)
    assert all(issubclass(view, OperatorView) for view in VIEWS.values())


@pytest.mark.parametrize("route", ROUTES)
def test_an_operator_sees_it(route: str) -> None:
    answer = operator().get(address(route))

    assert answer.status_code == 200, answer.text
    assert "Operator" in answer.text or route.startswith("orders/")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_for_everybody_else_it_does_not_exist(route: str, method: str) -> None:
    acme, _ = both()
    path = address(route)
    for caller in (Door(), acme.owner, acme.admin, acme.project):
        answer = caller.request(method, path, headers={"x-csrftoken": "c" * 32})
        nowhere = caller.request(method, "/nowhere", headers={"x-csrftoken": "c" * 32})

        assert (answer.status_code, nowhere.status_code) in {(404, 404), (403, 404), (403, 403)}
        if answer.status_code == 404:
            assert (
                answer.json()["error"]["message"].replace(path, "/nowhere")
                == (nowhere.json()["error"]["message"])
            )


@pytest.mark.parametrize("route", ROUTES)
def test_staff_without_a_second_factor_are_sent_to_add_one(route: str) -> None:
    answer = Door().sign_in(new_staff(has_factor=False)).get(address(route))

    assert answer.status_code == 302
    assert answer.headers["location"] == "/accounts/2fa/"


@pytest.mark.parametrize("route", ROUTES)
def test_where_the_operator_has_a_host_it_answers_there_only(route: str) -> None:
    caller = operator()
    path = address(route)
    with override_settings(OPERATOR_HOST="127.0.0.1"):
        assert caller.get(path).status_code == 200
    with override_settings(OPERATOR_HOST="operator.example:8443"):
        assert caller.get(path).status_code == 404
        assert caller.get("/console/").status_code in {200, 303}


@pytest.mark.parametrize("route", [route for route in ROUTES if CONVERTER.search(route)])
def test_what_is_not_there_is_404(route: str) -> None:
    strange = {found["name"]: uuid4() for found in CONVERTER.finditer(route)}

    assert operator().get(address(route, strange)).status_code == 404


def test_a_receipt_is_of_the_tenant_that_the_address_names() -> None:
    route = "tenants/<uuid:organization_id>/requests/<str:request_id>"
    strange = {**request(), "organization_id": both()[0].organization_id}

    assert operator().get(address(route, strange)).status_code == 404


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_asks_few_questions(route: str) -> None:
    path = address(route)
    client = Client(SERVER_NAME="127.0.0.1")
    client.cookies[settings.SESSION_COOKIE_NAME] = operator().session_key
    with CaptureQueriesContext(connections["default"]) as captured:
        assert client.get(path).status_code == 200

    asked = [one["sql"] for one in captured.captured_queries]
    assert 0 < len(asked) <= QUERIES_MAX, "\n".join(asked)
