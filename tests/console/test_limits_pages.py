"""Limits on pages: all that apply, how full, tried before they are set; enforced once they are."""

import re
from dataclasses import dataclass, replace
from html import unescape
from typing import Any
from uuid import uuid4

import httpx
import pytest

import tenants.facade
from billing.contracts import (
    PICO,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import hold, quotas, set_quota, settle
from headrace.console_kit.formats import money_exact
from headrace.gateway.admission.minute_limits import METRICS
from headrace.tenant_console.limits.meters import minute_limits
from tenants.contracts import MinuteLimited, MinuteLimits, Role
from tests.billing.cast import Tenant, colleague, make_tenant, refusals, used
from tests.headrace.door import Door, member_of

TAGS = re.compile(r"<[^>]*>")
BUDGET = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.SPEND, QuotaPeriod.MONTH, 1000)
NEW = {
    "whose": "organization",
    "metric": "tokens",
    "period": "day",
    "limit": "250",
    "effect": "refuse",
    "counts_cached": "yes",
}


@dataclass(frozen=True)
class Acme:
    """A tenant of the money tests, and its owner at the door."""

    tenant: Tenant
    slug: str
    owner: Door

    @property
    def actor(self) -> Any:
        """Somebody who may do everything here."""
        return tenants.facade.operator_of(self.tenant.organization_id)

    def page(self, path: str, status: int = 200, door: Door | None = None) -> httpx.Response:
        """A page of theirs."""
        answer = (door or self.owner).get(f"/console/{self.slug}/{path}")
        assert answer.status_code == status, answer.text
        return answer

    def send(self, path: str, do: str, **fields: str) -> httpx.Response:
        """A form of theirs."""
        return self.owner.post(f"/console/{self.slug}/{path}", data={"do": do, **fields})

    def member(self, role: Role) -> Door:
        """Somebody else of theirs."""
        return member_of(self.tenant.organization_id, role)

    def told(self) -> list[dict[str, Any]]:
        """The quotas as the API tells them."""
        path = f"/api/v1/organizations/{self.tenant.organization_id}/limits"
        found: list[dict[str, Any]] = self.owner.get(path).json()["quotas"]
        return found


@pytest.fixture
def acme(django_database: object) -> Acme:
    """A tenant with five in credit and its owner."""
    tenant = make_tenant("acme")
    slug = tenants.facade.read_organization(tenants.facade.operator_of(tenant.organization_id)).slug
    return Acme(tenant, slug, member_of(tenant.organization_id, Role.OWNER))


def words(text: str) -> str:
    """What a page says, in one line."""
    return " ".join(unescape(TAGS.sub(" ", text)).split())


def test_each_quota_says_what_is_used_held_and_free_as_the_api_does(acme: Acme) -> None:
    project = replace(BUDGET, scope=QuotaScope.PROJECT, scope_id=acme.tenant.project_id)
    for wanted in (
        *(BUDGET, replace(project, limit_amount=7 * 10**9)),
        QuotaWanted(QuotaScope.KEY, QuotaMetric.TOKENS, QuotaPeriod.DAY, 5_000, acme.tenant.key_id),
    ):
        set_quota(acme.actor, wanted)
    settle([used(acme.tenant.held(), UsageCounts(30, 20, 10))])
    acme.tenant.held()

    page = acme.page("limits").text

    by_id = {one["id"].replace("-", ""): one for one in acme.told()}
    for quota_id, one in by_id.items():
        [meter] = re.findall(rf'<div id="quota-{quota_id}".*?</td>', page, re.DOTALL)
        [subject] = one["used"]
        for name in ("used", "held"):
            value = subject[name]
            exact = (
                money_exact(int(value["amount_pico"]), "USD")
                if isinstance(value, dict)
                else f"{value:,}"
            )
            assert exact in meter, (name, meter)
    assert len(by_id) == 3
    said = words(page)
    assert "Project " in said
    assert "Key " in said
    assert "the operator" in said


def test_minute_limits_are_there_with_what_is_used_of_them(acme: Acme) -> None:
    actor = acme.actor
    key = tenants.facade.read_key(actor, acme.tenant.key_id)
    tenants.facade.update_project(
        actor, acme.tenant.project_id, limits=MinuteLimits(tokens_max=12_000)
    )
    tenants.facade.update_key(
        actor,
        acme.tenant.key_id,
        lambda settings: replace(settings, end_user_limits=MinuteLimits(5)),
    )
    organization = tenants.facade.read_organization(actor)

    page = acme.page("limits").text
    limited = tenants.facade.minute_limited(actor)

    assert [one.scope for one in limited] == ["organization", "project", "key"]
    assert limited[0].limits == organization.limits
    for name, scope_id, metric in (
        ("organization", acme.tenant.organization_id, "requests"),
        ("project", acme.tenant.project_id, "tokens"),
    ):
        assert f'id="minute-{name}-{scope_id.hex}-{metric}"' in page
    said = words(page)
    assert "0 of 12k" in said
    assert f"Each end user of key {key.settings.name}" in said


def test_a_minute_meter_is_of_the_counter_that_the_gateway_counts_on(acme: Acme) -> None:
    import asyncio
    import os

    from redis.asyncio import Redis

    from headrace.gateway.admission.minute_limits import Demand, LimitScope
    from headrace.gateway.admission.rate_limits import RateLimiter

    limits = MinuteLimits(10, 100, 90, 80, 4)
    organization_id, key_id = acme.tenant.organization_id, acme.tenant.key_id

    async def reserve() -> None:
        async with Redis.from_url(os.environ["REDIS_URL"]) as connection:
            scopes = [
                LimitScope("organization", "", limits),
                LimitScope("key", key_id.hex, limits),
            ]
            await RateLimiter(connection).reserve(organization_id, uuid4(), Demand(7, 5), scopes)

    asyncio.run(reserve())
    found = minute_limits(
        organization_id,
        [
            MinuteLimited("organization", organization_id, limits),
            MinuteLimited("key", key_id, limits),
        ],
    )

    assert [one.meter.used for one in found] == [1, 12, 7, 5, 1] * 2
    assert len(found) == 2 * len(METRICS)


def test_a_limit_is_set_and_refuses(acme: Acme) -> None:
    colleague(acme.tenant.organization_id, "money@acme.example")
    answer = acme.send("limits/new", "create", **NEW, recipients="money@acme.example")
    [quota] = quotas(acme.actor)

    assert answer.status_code == 303
    assert answer.headers["location"] == f"/console/{acme.slug}/limits/{quota.quota_id}"
    assert (quota.wanted.limit_amount, quota.wanted.is_hard) == (250, True)
    assert quota.wanted.recipients == ("money@acme.example",)
    outcomes = [refusals(hold([acme.tenant.request()])) for _ in range(3)]
    assert outcomes == [[None], [None], ["quota_exceeded"]]


@pytest.mark.parametrize(
    ("whose", "scope", "end_user"),
    [
        ("project:{project}", QuotaScope.PROJECT, ""),
        ("key:{key}", QuotaScope.KEY, ""),
        ("end_users", QuotaScope.END_USER, ""),
        ("end_user", QuotaScope.END_USER, "bob"),
    ],
)
def test_a_limit_is_of_whom_was_chosen(
    acme: Acme, whose: str, scope: QuotaScope, end_user: str
) -> None:
    ids = {"project": acme.tenant.project_id, "key": acme.tenant.key_id}
    fields = {**NEW, "whose": whose.format(**ids), "end_user": "bob", "metric": "spend"}
    answer = acme.send("limits/new", "create", **{**fields, "limit": "12.50", "effect": "tell"})

    [quota] = quotas(acme.actor)
    assert answer.status_code == 303
    assert (quota.wanted.scope, quota.wanted.end_user) == (scope, end_user)
    assert quota.wanted.scope_id == ids.get(whose.partition(":")[0])
    assert (quota.wanted.limit_amount, quota.wanted.is_hard) == (12 * PICO + PICO // 2, False)
    assert acme.page(f"limits/{quota.quota_id}").status_code == 200


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"limit": "-1"}, "limit"),
        ({"limit": "1.5"}, "limit"),
        ({"limit": "1e9", "metric": "spend"}, "limit"),
        ({"limit": "9" * 40}, "limit"),
        ({"whose": "end_user"}, "end_user"),
        ({"whose": f"project:{uuid4()}"}, "whose"),
        ({"whose": "everybody"}, "whose"),
        ({"metric": "euros"}, "metric"),
        ({"recipients": "stranger@example.net"}, "recipients"),
        ({"subject_prefix": "https://evil.example"}, "subject_prefix"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_beside_its_field(
    acme: Acme, fields: dict[str, str], at_fault: str
) -> None:
    answer = acme.send("limits/new", "create", **{**NEW, **fields})

    assert answer.status_code == 422
    assert re.search(rf'name="{at_fault}"[^>]*aria-invalid="true"', answer.text)
    assert quotas(acme.actor) == []


def test_trying_a_limit_says_what_it_would_have_done_and_sets_nothing(acme: Acme) -> None:
    settle([used(acme.tenant.held(), UsageCounts(30, 20, 10))])
    query = "&".join(f"{name}={value}" for name, value in NEW.items())

    tight = acme.page(f"limits/new?preview=1&{query}".replace("limit=250", "limit=60"))
    loose = acme.page(f"limits/new?preview=1&{query}".replace("limit=250", "limit=61"))
    each = acme.page(f"limits/new?preview=1&{query}".replace("=organization", "=end_users"))
    wrong = acme.page(f"limits/new?preview=1&{query}".replace("limit=250", "limit=x"))

    assert "would have been reached on 1 of 30 days" in words(tight.text)
    assert "would not have been reached on any of 30 days" in words(loose.text)
    assert "The most that was used in one day is 60" in words(loose.text)
    assert "cannot be tried" in words(each.text)
    assert 'aria-invalid="true"' in wrong.text
    assert quotas(acme.actor) == []


def test_a_limit_is_changed_and_lifted(acme: Acme) -> None:
    quota = set_quota(acme.actor, BUDGET)
    path = f"limits/{quota.quota_id}"
    shown = acme.page(path)

    changed = acme.send(path, "change", limit="0.000000002")
    [after] = quotas(acme.actor)
    bad = acme.send(path, "change", limit="two")
    lifted = acme.send(path, "lift")

    assert 'value="0.000000001"' in shown.text
    assert (changed.status_code, bad.status_code, lifted.status_code) == (303, 422, 303)
    assert (after.quota_id, after.wanted.limit_amount) == (quota.quota_id, 2000)
    assert quotas(acme.actor) == []
    acme.page(path, status=404)


def test_a_used_up_budget_says_so_on_limits_and_billing_and_leads_on(acme: Acme) -> None:
    quota = set_quota(acme.actor, replace(BUDGET, limit_amount=100))
    acme.tenant.held()
    [refused] = refusals(hold([acme.tenant.request()]))

    for path in ("limits", "billing"):
        page = acme.page(path)
        [alert] = re.findall(r"is-urgent.*?</div></div>", page.text, re.DOTALL)
        assert "Organization: the limit of spend a month is reached" in words(alert)
        assert f"/limits/{quota.quota_id}" in alert
        assert "/billing/top-up" in alert
    assert refused == "quota_exceeded"
    viewer = acme.page("limits", door=acme.member(Role.VIEWER))
    assert "is reached" in viewer.text
    assert "top-up" not in viewer.text


def test_a_limit_of_nothing_is_reached(acme: Acme) -> None:
    quota = set_quota(acme.actor, replace(BUDGET, limit_amount=0))

    page = acme.page("limits").text

    [meter] = re.findall(rf'<div id="quota-{quota.quota_id.hex}".*?</td>', page, re.DOTALL)
    assert "reached" in words(meter)
    assert "the limit of spend a month is reached" in words(page)


def test_a_used_up_balance_is_said_on_limits(acme: Acme) -> None:
    acme.tenant.held(5 * PICO, 0)

    assert "The balance is used up" in words(acme.page("limits").text)
    assert "The balance" not in words(acme.page("limits", door=acme.member(Role.VIEWER)).text)


def test_a_viewer_sees_limits_and_is_offered_no_change(acme: Acme) -> None:
    quota = set_quota(acme.actor, BUDGET)
    viewer = acme.member(Role.VIEWER)

    listed = acme.page("limits", door=viewer)
    one = acme.page(f"limits/{quota.quota_id}", door=viewer)

    assert "New limit" not in listed.text
    assert "<form" not in one.text.split('<main id="content"')[1]
    acme.page("limits/new", status=403, door=viewer)


def test_without_quotas_the_page_teaches_the_first_budget(acme: Acme) -> None:
    page = acme.page("limits")

    assert "Set a budget" in page.text
    form = acme.page("limits/new?whose=organization&metric=spend&period=month")
    assert re.search(r'<option value="spend"\s+selected', form.text)
