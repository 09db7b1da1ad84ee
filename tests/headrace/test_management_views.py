"""What every view of the management API shares, seen on views made for these tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
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
from tests.headrace.door import Door, admin_key, member_of
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


class BrokenView(TenantView):
    """A fault of ours."""

    permissions = {"GET": Permission.PROJECTS_READ}

    def get(self, request: Request, **_: object) -> Response:
        """Fails with something nobody outside may read."""
        raise RuntimeError("engine.internal.example said no")


PARTS = 8
PART_S = 0.05


def long_answer(request: HttpRequest) -> StreamingHttpResponse:
    """Parts that come slowly, one after the other."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(PARTS):
            await asyncio.sleep(PART_S)
            yield b"part\n"

    return StreamingHttpResponse(parts())


urlpatterns = [
    path("long", long_answer),
    path("api/v1/organizations/<uuid:organization_id>/things", ThingsView.as_view()),
    path("api/v1/organizations/<uuid:organization_id>/broken", BrokenView.as_view()),
]


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


def test_a_sensitive_act_wants_a_recent_sign_in(acme: Tenant) -> None:
    long_ago = member_of(
        acme.organization_id, Role.OWNER, seconds_ago=settings.ACCOUNT_REAUTHENTICATION_TIMEOUT + 1
    )

    assert long_ago.get(things(acme)).status_code == 200
    assert error_of(long_ago.post(things(acme), json={"name": "x"})) == (
        403,
        "reauthentication_required",
        None,
    )


def test_a_role_without_the_permission_is_told_so(acme: Tenant) -> None:
    viewer = member_of(acme.organization_id, Role.VIEWER)

    assert viewer.get(things(acme)).status_code == 200
    assert error_of(viewer.post(things(acme), json={"name": "x"}))[:2] == (
        403,
        "insufficient_permissions",
    )


def test_another_organization_is_not_there_at_all(acme: Tenant) -> None:
    stranger = member_of(make_tenant("globex").organization_id, Role.OWNER)
    answers = [
        stranger.get(things(acme)),
        stranger.get(f"/api/v1/organizations/{uuid4()}/things"),
    ]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


def test_a_projects_key_administers_nothing(acme: Tenant) -> None:
    globex = make_tenant("globex")

    for tenant in (acme, globex):
        assert error_of(Door(acme.secret).get(things(tenant)))[:2] == (
            403,
            "insufficient_permissions",
        )


def test_an_admin_key_acts_in_its_organization_by_its_permissions(acme: Tenant) -> None:
    globex = make_tenant("globex")
    door = Door(admin_key(acme.organization_id, Permission.PROJECTS_READ))

    assert door.get(things(acme)).status_code == 200
    assert door.post(things(acme), json={"name": "x"}).status_code == 403
    assert door.get(things(globex)).status_code == 404


def test_a_key_that_is_sent_decides_over_a_cookie(acme: Tenant) -> None:
    owner = owner_of(acme)
    answer = owner.get(things(acme), headers={"authorization": "Bearer hr-nonsense"})

    assert error_of(answer) == (401, "invalid_api_key", None)


def test_a_method_that_is_not_there_names_those_that_are(acme: Tenant) -> None:
    answer = owner_of(acme).delete(things(acme))

    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST, HEAD, OPTIONS"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100 + b"]" * 100, "application/json", 400),
        (b"name=x", "application/x-www-form-urlencoded", 415),
        (b'{"name": "x"}', "text/plain", 415),
    ],
)
def test_a_body_is_bounded_json_or_refused(
    acme: Tenant, content: bytes, kind: str, status: int
) -> None:
    answer = owner_of(acme).post(things(acme), content=content, headers={"content-type": kind})

    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_host_that_is_not_ours_is_refused(acme: Tenant) -> None:
    answer = owner_of(acme).get(things(acme), headers={"host": "elsewhere.example"})

    assert answer.status_code == 400
    assert answer.headers["x-request-id"].startswith("req_")


def test_no_page_of_another_site_may_read_us(acme: Tenant) -> None:
    answer = owner_of(acme).get(things(acme), headers={"origin": "https://elsewhere.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_fault_of_ours_is_told_without_a_word_of_it(acme: Tenant) -> None:
    answer = owner_of(acme).get(things(acme).replace("things", "broken"))

    assert error_of(answer) == (500, "engine_error", None)
    assert answer.headers["x-request-id"].startswith("req_")
    assert "internal" not in answer.text.replace("Internal error.", "")
    assert "Traceback" not in answer.text


@override_settings(REST_ANSWER_MAX_S=PART_S * PARTS / 2)
def test_a_long_answer_may_take_longer_than_its_beginning() -> None:
    assert Door().get("/long").content == b"part\n" * PARTS
