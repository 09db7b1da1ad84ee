"""Limits that were set over the API are shown, and bind the next request."""

from typing import Any

import openai
import pytest

from billing.contracts import UsageCounts
from billing.facade import hold, settle
from tenants.contracts import Permission, Role
from tests.billing.cast import Tenant, colleague, make_tenant, refusals, used
from tests.headrace.door import Door, admin_key, member_of
from tests.headrace.test_openai_administration import told


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose limits they are."""
    return make_tenant("acme")


def path(tenant: Tenant) -> str:
    return f"/api/v1/organizations/{tenant.organization_id}/limits"


def quota(**fields: Any) -> dict[str, Any]:
    return {
        "scope": "organization",
        "metric": "tokens",
        "period": "day",
        "limit": 250,
        **fields,
    }


def test_what_is_put_is_got_and_enforced(acme: Tenant) -> None:
    door = member_of(acme.organization_id, Role.ADMIN)
    colleague(acme.organization_id, "money@acme.example")
    wanted = [
        quota(limit="250", counts_cached=False),
        quota(scope="project", scope_id=str(acme.project_id), metric="spend", limit="5.00"),
        quota(scope="end_user", metric="requests", period="month", limit=3),
        quota(
            metric="spend",
            period="month",
            limit="0.5",
            hard=False,
            recipients=["money@acme.example"],
            subject_prefix="[acme]",
        ),
    ]

    put = door.request("PUT", path(acme), json={"quotas": wanted})
    request = acme.held()
    settle([used(request, UsageCounts(30, 20, 10))])
    acme.held()
    got = door.get(path(acme))

    assert put.status_code == got.status_code == 200
    shown = got.json()["quotas"]
    assert [one["id"] for one in put.json()["quotas"]] == [one["id"] for one in shown]
    told_of = {"scope", "metric", "period", "hard", "counts_cached", "recipients"}
    for one, asked in zip(shown, wanted, strict=True):
        defaults = {"hard": True, "counts_cached": True, "recipients": []}
        assert {name: one[name] for name in told_of} == {
            name: {**defaults, **asked}[name] for name in told_of
        }
        assert one["set_by"]["kind"] == "user" and one["set_by"]["id"]
        assert one["window_start"] < one["resets_at"]
    assert shown[0]["limit"] == 250
    assert shown[0]["used"] == [{"end_user": "", "used": 40, "held": 100}]
    assert shown[1]["limit"] == {"amount_pico": "5000000000000", "amount": "5.00"}
    assert shown[1]["used"][0]["used"] == {"amount_pico": "60", "amount": "0.00000000006"}
    assert shown[3]["subject_prefix"] == "[acme]"
    assert got.json()["minute"]["requests_max"] > 0
    assert refusals(hold([acme.request(), acme.request()])) == [None, "quota_exceeded"]


def test_limits_left_out_are_lifted_and_a_bad_one_changes_none(
    acme: Tenant, django_database: object
) -> None:
    door = member_of(acme.organization_id, Role.OWNER)
    globex = make_tenant("globex")
    door.request("PUT", path(acme), json={"quotas": [quota(), quota(period="month")]})
    before = door.get(path(acme)).json()

    foreign = quota(scope="key", scope_id=str(globex.key_id))
    refused = door.request("PUT", path(acme), json={"quotas": [quota(limit=1), foreign]})
    assert refused.status_code == 404
    assert door.get(path(acme)).json() == before

    kept = door.request("PUT", path(acme), json={"quotas": [quota()]}).json()["quotas"]
    assert [one["id"] for one in kept] == [before["quotas"][0]["id"]]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "quotas"),
        ({"quotas": [quota(budget=5)]}, "quotas.0.budget"),
        ({"quotas": [quota(metric="euros")]}, "quotas.0.metric"),
        ({"quotas": [quota(), quota(limit=-1)]}, "quotas.1.limit"),
        ({"quotas": [quota(limit="5.00")]}, "quotas.0.limit"),
        ({"quotas": [quota(metric="spend", limit="-5")]}, "quotas.0.limit"),
        ({"quotas": [quota(metric="spend", limit="1e9")]}, "quotas.0.limit"),
        ({"quotas": [quota(scope="project")]}, "scope_id"),
        ({"quotas": [quota(recipients=["nobody"])]}, "quotas.0.recipients.0"),
        ({"quotas": [quota(recipients=["stranger@example.net"])]}, "recipients"),
        ({"quotas": [quota(subject_prefix="https://evil.example")]}, "subject_prefix"),
        ({"quotas": [quota(), quota()]}, "quotas"),
        ({"quotas": [], "balance": 5}, "balance"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_name(
    acme: Tenant, body: dict[str, Any], param: str
) -> None:
    door = member_of(acme.organization_id, Role.OWNER)

    answer = door.request("PUT", path(acme), json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert door.get(path(acme)).json()["quotas"] == []


def test_openais_client_limits_spend_and_is_told_of_it(acme: Tenant) -> None:
    project = str(acme.project_id)

    async def story(client: openai.AsyncOpenAI) -> list[Any]:
        of_all = client.admin.organization
        set_ = await of_all.spend_limit.update(
            threshold_amount=1250, currency="USD", interval="month"
        )
        mine = await of_all.projects.spend_limit.update(
            project, threshold_amount=0, currency="USD", interval="month"
        )
        got = await of_all.spend_limit.retrieve()
        assert got == set_
        gone = await of_all.projects.spend_limit.delete(project)
        with pytest.raises(openai.NotFoundError):
            await of_all.projects.spend_limit.retrieve(project)
        with pytest.raises(openai.BadRequestError):
            await of_all.spend_limit.update(
                threshold_amount=1,
                currency="EUR",  # type: ignore[arg-type]  # what the client would not send
                interval="month",
            )
        return [set_, mine, gone]

    set_, mine, gone = told(admin_key(acme.organization_id), story)

    assert (set_.threshold_amount, set_.enforcement.status) == (1250, "inactive")
    assert (mine.threshold_amount, mine.object) == (0, "project.spend_limit")
    assert gone.deleted
    shown = Door(admin_key(acme.organization_id)).get(path(acme)).json()["quotas"]
    assert [one["limit"]["amount"] for one in shown] == ["12.50"]


def test_openais_client_keeps_alerts_side_by_side(acme: Tenant) -> None:
    project = str(acme.project_id)
    colleague(acme.organization_id, "a@acme.example")
    channel: Any = {"type": "email", "recipients": ["a@acme.example"], "subject_prefix": "[x]"}
    unnamed: Any = {**channel, "subject_prefix": None}

    async def story(client: openai.AsyncOpenAI) -> list[Any]:
        alerts = client.admin.organization.projects.spend_alerts
        made = [
            await alerts.create(
                project,
                threshold_amount=cents,
                currency="USD",
                interval="month",
                notification_channel=channel,
            )
            for cents in (100, 200, 300)
        ]
        changed = await alerts.update(
            made[0].id,
            project_id=project,
            threshold_amount=50,
            currency="USD",
            interval="month",
            notification_channel=unnamed,
        )
        assert changed.id == made[0].id
        await alerts.delete(made[1].id, project_id=project)
        listed = [one async for one in alerts.list(project, limit=1)]
        assert await alerts.retrieve(made[2].id, project_id=project) == listed[0]
        assert [one async for one in client.admin.organization.spend_alerts.list()] == []
        return listed

    listed = told(admin_key(acme.organization_id), story)

    assert [one.threshold_amount for one in listed] == [300, 50]
    assert [one.notification_channel.subject_prefix for one in listed] == ["[x]", None]
    assert listed[0].notification_channel.recipients == ["a@acme.example"]


def test_openais_client_changes_a_projects_rate_limits(acme: Tenant) -> None:
    project = str(acme.project_id)

    async def story(client: openai.AsyncOpenAI) -> list[Any]:
        limits = client.admin.organization.projects.rate_limits
        [before] = [one async for one in limits.list_rate_limits(project)]
        await limits.update_rate_limit(
            before.id,
            project_id=project,
            max_requests_per_1_minute=7,
            max_requests_per_1_day=1,
        )
        [after] = [one async for one in limits.list_rate_limits(project)]
        with pytest.raises(openai.BadRequestError):
            await limits.update_rate_limit(before.id, project_id=project, max_images_per_1_minute=1)
        return [before, after]

    before, after = told(admin_key(acme.organization_id), story)

    assert before.max_requests_per_1_minute != 7
    assert (after.max_requests_per_1_minute, after.max_requests_per_1_day) == (7, 1)
    assert after.max_tokens_per_1_minute == before.max_tokens_per_1_minute
    assert refusals(hold([acme.request(), acme.request()])) == [None, "quota_exceeded"]


def test_minute_limits_are_shown_to_those_who_may_read_the_organization(acme: Tenant) -> None:
    key = admin_key(acme.organization_id, Permission.LIMITS_READ)

    answer = Door(key).get(path(acme))

    assert answer.json() == {"object": "limits", "minute": None, "quotas": []}
