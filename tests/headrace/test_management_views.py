"""What every view of the management API shares, seen on views made for these tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body, money
from headrace.management_api.paging import asked_page, page_body
from headrace.urls import handler400, handler404, handler500
from tenants.contracts import Permission, Role
from tests.headrace.door import Door, member_of
from tests.tenants.cast import Tenant, make_tenant

__all__ = ["handler400", "handler404", "handler500"]


class LimitBody(Body):
    """A nested body."""

    metric = serializers.ChoiceField(["requests", "tokens"])


class ThingBody(Body):
    """A body with each kind of field."""

    name = serializers.CharField(max_length=10)
    limits = LimitBody(many=True, required=False)


class ThingsView(TenantView):
    """Three things."""

    permissions = {"GET": Permission.PROJECTS_READ, "POST": Permission.PROJECTS_WRITE}
    sensitive = frozenset({"POST"})

    def get(self, request: Request, **_: object) -> Response:
        """A page of three."""
        page = asked_page(request)
        rows = [{"id": str(number)} for number in range(3)][: page.rows_max]
        return Response(page_body(rows, page, dict))

    def post(self, request: Request, **_: object) -> Response:
        """Echoes the body."""
        body = self.body(ThingBody)
        return Response({**body, "actor": self.actor.kind, **money(1500)}, status=201)


urlpatterns = [path("api/v1/organizations/<uuid:organization_id>/things", ThingsView.as_view())]


@pytest.fixture(autouse=True)
def these_routes(django_database: object) -> Iterator[None]:
    """Serves this module's routes."""
    with override_settings(ROOT_URLCONF=__name__):
        yield


@pytest.fixture
def acme() -> Tenant:
    """A tenant."""
    return make_tenant("acme")


def owner_of(tenant: Tenant) -> Door:
    """A signed-in owner."""
    return member_of(tenant.organization_id, Role.OWNER)


def things(tenant: Tenant) -> str:
    return f"/api/v1/organizations/{tenant.organization_id}/things"


def error_of(answer: Any) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["code"], error["param"]


def test_a_page_says_whether_more_follow(acme: Tenant) -> None:
    door = owner_of(acme)
    page = door.get(things(acme), params={"limit": 2})

    assert page.status_code == 200
    assert page.headers["x-request-id"].startswith("req_")
    assert page.json() == {
        "object": "list",
        "data": [{"id": "0"}, {"id": "1"}],
        "first_id": "0",
        "last_id": "1",
        "has_more": True,
    }
    assert door.get(things(acme)).json()["has_more"] is False


@pytest.mark.parametrize(
    "query",
    [
        "limit=101",
        "limit=0",
        "limit=x",
        "limit=1&limit=2",
        "order=up",
        "after=x",
        "organization_id=x",
    ],
)
def test_a_query_that_means_nothing_is_refused_by_name(acme: Tenant, query: str) -> None:
    answer = owner_of(acme).get(f"{things(acme)}?{query}")

    assert error_of(answer) == (400, "invalid_value", query.partition("=")[0])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x", "organization_id": "y"}, "organization_id"),
        ({"name": "x", "limits": [{"metric": "tokens"}, {"metric": "x"}]}, "limits.1.metric"),
        ({"name": "x", "limits": [{"metric": "tokens", "role": "owner"}]}, "limits.0.role"),
        ({}, "name"),
        ([], None),
    ],
)
def test_a_body_is_refused_by_the_field_at_fault(
    acme: Tenant, body: object, param: str | None
) -> None:
    answer = owner_of(acme).post(things(acme), json=body)

    assert error_of(answer) == (400, "invalid_value", param)


def test_money_goes_out_as_strings(acme: Tenant) -> None:
    answer = owner_of(acme).post(things(acme), json={"name": "x"})

    assert answer.status_code == 201
    assert answer.json() == {
        "name": "x",
        "actor": "user",
        "amount_pico": "1500",
        "amount": "0.0000000015",
    }
