"""Known faults of other dashboards, tried on ours: pages that ask less than the API asks, and pages
that add up every request each time somebody looks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

import billing.facade
import tenants.facade
from headrace.console_kit.live.pages import LivePages
from headrace.console_kit.live.socket import CLOSE_FORBIDDEN
from headrace.tenant_console.live_topics import TOPICS
from tenants.contracts import Role
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, make_tenant
from tests.billing.planted import Planted, planted
from tests.console.test_live_socket import CLOSED, House, run
from tests.headrace.door import Door, member_of
from tests.isolation.rows_console import PAGES
from tests.isolation.sides import Side, both, make_side
from tests.isolation.test_console_matrix import READABLE, address, slug_of

pytestmark = pytest.mark.usefixtures("django_database")
READ_TWINS = {
    "": "usage",
    "usage": "usage",
    "requests": "requests",
    "limits": "limits",
    "billing": "billing",
    "billing/invoices": "invoices",
    "billing/credits": "credits",
    "billing/prices": "prices",
    "keys": "keys",
    "keys/accounts": "service_accounts",
    "team": "members",
    "webhooks": "webhooks",
    "audit": "audit_log",
    "projects": "projects",
    "settings/data": "exports",
}
"""Pages, and the routes of the API that tell the same."""
WRITE_TWINS = {
    ("keys/new", "create"): ("POST", "keys"),
    ("keys/accounts", "create"): ("POST", "service_accounts"),
    ("limits/new", "create"): ("PUT", "limits"),
    ("billing/top-up", "pay"): ("POST", "topups"),
    ("team/invite", "invite"): ("POST", "invitations"),
    ("webhooks/new", "create"): ("POST", "webhooks"),
    ("projects", "create"): ("POST", "projects"),
    ("settings", "save"): ("PATCH", ""),
}
"""Forms, and the calls that do the same. Nothing is in them: whoever may is told what is wrong."""
LIVE_TWINS = {"usage": "usage", "limits": "limits", "balance": "billing"}
"""What the socket tells live, and the routes of the API that tell the same."""
FORBIDDEN = 403
"""Any other answer is one to somebody who may."""
LOOKS = ("", "usage", "usage?split=key", "usage?split=model&measure=spend", "keys")
EVENTS = 200
EVENT_TABLES = "billing_usage_event"


def of_api(side: Side, route: str) -> str:
    return f"/api/v1/organizations/{side.organization_id}/{route}".rstrip("/")


def is_shown(side: Side, who: Door, topic: str) -> bool:
    """Whether the socket shows somebody a topic, or is closed."""
    slug = slug_of(side)

    async def story(house: House) -> bool:
        house.application.live = LivePages(house.application.feeds, TOPICS, {})
        page = await house.look(who, slug, topic)
        event = await page.talk.receive_output(timeout=20)
        if event["type"] == CLOSED:
            assert event["code"] == CLOSE_FORBIDDEN, event
            return False
        await page.leave()
        return True

    return bool(run(story))


@pytest.mark.parametrize("role", Role)
def test_a_page_a_route_and_a_socket_let_the_same_people_in(
    role: Role, subtests: pytest.Subtests
) -> None:
    acme, _ = both()
    who = acme.members[role]
    slug = slug_of(acme)
    for page, route in READ_TWINS.items():
        with subtests.test(page=page):
            told = who.get(of_api(acme, route))
            shown = who.get(f"/console/{slug}/{page}")
            assert (shown.status_code == 200) is (told.status_code != FORBIDDEN)
    for (page, verb), (method, route) in WRITE_TWINS.items():
        with subtests.test(form=page):
            called = who.request(method, of_api(acme, route), json={"x": 1})
            sent = who.post(f"/console/{slug}/{page}", data={"do": verb})
            assert called.status_code in (400, FORBIDDEN), called.text
            assert sent.status_code in (422, FORBIDDEN), sent.text
            assert (called.status_code == FORBIDDEN) is (sent.status_code == FORBIDDEN)
    for topic, route in LIVE_TWINS.items():
        with subtests.test(topic=topic):
            told = who.get(of_api(acme, route))
            assert is_shown(acme, who, topic) is (told.status_code != FORBIDDEN)


def test_who_loses_a_role_loses_it_everywhere_with_the_next_request() -> None:
    side = make_side("demoted")
    user_id, who, slug = side.users[Role.BILLING], side.members[Role.BILLING], slug_of(side)

    def seen() -> list[bool]:
        return [
            who.get(f"/console/{slug}/billing").status_code == 200,
            who.get(of_api(side, "billing")).status_code == 200,
            is_shown(side, who, "balance"),
        ]

    before = seen()
    tenants.facade.change_role(side.actor, user_id, Role.VIEWER)

    assert before == [True] * 3
    assert seen() == [False] * 3


@pytest.mark.parametrize("key", ["project", "admin"])
def test_no_key_opens_a_page_whatever_it_may_do_at_the_api(key: str) -> None:
    acme, _ = both()
    who: Door = getattr(acme, key)
    for route in READABLE:
        answer = who.get(address(route, slug_of(acme), PAGES[route].own(acme)))

        assert answer.status_code == 302, (route, answer.text)
        assert answer.headers["location"].startswith("/accounts/login/"), route


@pytest.fixture
def busy() -> Iterator[Tenant]:
    """Somebody with a request every three hours of the last weeks, that no rollup has counted."""
    tenant = make_tenant("busy")
    last = datetime.now(UTC) - timedelta(minutes=1)
    with planted(tenant, [Planted(last - n * timedelta(hours=3)) for n in range(EVENTS)]):
        yield tenant


def events_read(plan: dict[str, Any]) -> int:
    """How many rows of usage events a plan has looked at, kept or not."""
    read = sum(events_read(part) for part in plan.get("Plans", []))
    if str(plan.get("Relation Name", "")).startswith(EVENT_TABLES):
        looked_at = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        read += round(looked_at * plan["Actual Loops"])
    return read


def test_a_look_at_a_month_reads_no_request_that_is_counted_already(busy: Tenant) -> None:
    owner = member_of(busy.organization_id, Role.OWNER)
    client = Client(SERVER_NAME=urlsplit(settings.PUBLIC_URL).hostname)
    client.cookies[settings.SESSION_COOKIE_NAME] = owner.session_key
    actor = tenants.facade.operator_of(busy.organization_id)
    slug = tenants.facade.read_organization(actor).slug

    def look(page: str) -> int:
        with CaptureQueriesContext(connections["default"]) as captured:
            answer = client.get(f"/console/{slug}/{page}")
        assert answer.status_code == 200
        read = 0
        with tenant_scope(busy.organization_id), connections["default"].cursor() as cursor:
            for query in captured.captured_queries:
                if "billing_usage" in query["sql"]:
                    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query['sql']}")
                    [[answered]] = cursor.fetchone()
                    read += events_read(answered["Plan"])
        return read

    before = {page: look(page) for page in LOOKS}
    billing.facade.roll_up()
    after = {page: look(page) for page in LOOKS}

    assert all(read >= EVENTS // 2 for read in before.values()), before
    assert set(after.values()) == {0}, after
