"""What an organization and its projects are set to, by whom, and what nobody sets here."""

from collections.abc import Callable
from typing import Any

import pytest

from tenants import facade
from tenants.contracts import (
    InvalidValue,
    KeySettings,
    MinuteLimits,
    OrganizationStatus,
    Permission,
    PermissionDenied,
    Role,
    TenantConflict,
    TenantObjectNotFound,
)
from tests.headrace.door import Door
from tests.tenants.people_cast import Company, make_company


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization that is set up."""
    return make_company("acme")


def path(company: Company, below: str = "") -> str:
    return f"/api/v1/organizations/{company.tenant.organization_id}{below}"


def door(company: Company, role: Role) -> Door:
    """The member of that role, who has just signed in."""
    return Door().sign_in(company.people[role].user_id)


def test_settings_are_echoed_stored_and_audited(acme: Company) -> None:
    admin = door(acme, Role.ADMIN)
    change = {
        "display_name": "Acme & Sons",
        "time_zone": "Europe/Amsterdam",
        "cost_tags": ["feature", "team"],
        "cache_per_project": True,
        "prompts_kept_days": 30,
    }

    changed = admin.patch(path(acme), json=change)
    undone = admin.patch(path(acme), json={"prompts_kept_days": None})

    assert changed.json() | change == changed.json()
    assert undone.json()["prompts_kept_days"] is None
    assert undone.json()["time_zone"] == "Europe/Amsterdam"
    stored = facade.read_organization(acme.owner)
    assert (stored.display_name, stored.cost_tags) == ("Acme & Sons", ("feature", "team"))
    [last, first] = facade.list_audit(
        acme.owner, facade.AuditFilter(actions=("organization.updated",))
    )
    assert last.details == {"prompts_kept_days": {"from": 30, "to": None}}
    assert first.details["time_zone"] == {"from": "UTC", "to": "Europe/Amsterdam"}


def test_setting_what_is_set_already_is_no_act(acme: Company) -> None:
    before = facade.list_audit(acme.owner)

    facade.update_organization(acme.owner, time_zone="UTC", cost_tags=[])

    assert facade.list_audit(acme.owner) == before


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone"),
        ({"time_zone": "+02:00"}, "time_zone"),
        ({"time_zone": "localtime"}, "time_zone"),
        ({"time_zone": "Factory"}, "time_zone"),
        ({"cost_tags": ["a b"]}, "cost_tags"),
        ({"cost_tags": [str(number) for number in range(17)]}, "cost_tags"),
        ({"prompts_kept_days": 0}, "prompts_kept_days"),
        ({"prompts_kept_days": 366}, "prompts_kept_days"),
        ({"display_name": " "}, "display_name"),
        ({"display_name": "two\nlines"}, "display_name"),
        ({"currency": "EUR"}, "currency"),
        ({"status": "active"}, "status"),
        ({"slug": "globex"}, "slug"),
        ({"limits": {"requests_max": 10**6}}, "limits"),
    ],
)
def test_what_cannot_be_set_is_named(acme: Company, body: dict[str, Any], param: str) -> None:
    before = facade.read_organization(acme.owner)

    answer = door(acme, Role.OWNER).patch(path(acme), json=body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert facade.read_organization(acme.owner) == before


def test_a_suspended_organizations_members_still_look(acme: Company) -> None:
    facade.set_organization_status(acme.tenant.organization_id, OrganizationStatus.SUSPENDED)

    assert door(acme, Role.VIEWER).get(path(acme)).json()["status"] == "suspended"


def test_a_closed_organization_is_not_found(acme: Company) -> None:
    facade.set_organization_status(acme.tenant.organization_id, OrganizationStatus.CLOSED)

    assert door(acme, Role.OWNER).get(path(acme)).status_code == 404


def test_the_operator_sets_the_organizations_own_limits(acme: Company) -> None:
    facade.set_organization_limits(
        acme.tenant.organization_id, MinuteLimits(requests_max=7, output_tokens_max=8)
    )

    limits = facade.read_organization(acme.owner).limits
    assert limits == MinuteLimits(7, 1_000_000, None, 8, 64)
    [entry] = facade.list_audit(acme.owner, facade.AuditFilter(actions=("limit.changed",)))
    assert entry.details["from"]["requests_per_minute_max"] == 600


def test_a_project_is_renamed_limited_and_archived(acme: Company) -> None:
    admin = door(acme, Role.ADMIN)
    limits = {
        "requests_max": 5,
        "tokens_max": None,
        "input_tokens_max": 100,
        "output_tokens_max": None,
        "concurrent_max": 1,
    }
    made = admin.post(path(acme, "/projects"), json={"name": "lab", "limits": limits})
    project = path(acme, f"/projects/{made.json()['id']}")
    renamed = admin.patch(project, json={"name": "laboratory"})
    lifted = admin.patch(project, json={"limits": {}})
    archived = admin.post(f"{project}/archive")
    late = admin.patch(project, json={"name": "too late"})

    assert made.json()["limits"] == limits
    assert (renamed.json()["name"], renamed.json()["limits"]) == ("laboratory", limits)
    assert set(lifted.json()["limits"].values()) == {None}
    assert archived.json()["archived_at"] is not None
    assert late.status_code == 409
    listed = admin.get(path(acme, "/projects")).json()["data"]
    everything = admin.get(path(acme, "/projects?archived=true")).json()["data"]
    assert made.json()["id"] not in {one["id"] for one in listed}
    assert made.json()["id"] in {one["id"] for one in everything}


def test_limits_want_their_own_permission(acme: Company) -> None:
    secret = facade.create_admin_key(
        acme.owner, "projects", frozenset({Permission.PROJECTS_WRITE, Permission.PROJECTS_READ})
    ).secret
    actor = facade.actor_for_key(facade.authenticate(secret))
    limits = MinuteLimits(requests_max=1)

    assert facade.update_project(actor, acme.tenant.project_id, name="renamed").name == "renamed"
    with pytest.raises(PermissionDenied):
        facade.update_project(actor, acme.tenant.project_id, limits=limits)
    with pytest.raises(PermissionDenied):
        facade.open_project(actor, "limited", limits)


def test_an_archived_project_gets_no_new_keys_and_accounts(acme: Company) -> None:
    facade.close_project(acme.owner, acme.tenant.project_id)
    project = acme.tenant.project_id

    makes: list[Callable[[], object]] = [
        lambda: facade.create_service_account(acme.owner, project, "ci"),
        lambda: facade.create_key(acme.owner, project, KeySettings("late")),
    ]
    for make in makes:
        with pytest.raises(TenantConflict):
            make()


def test_another_organizations_project_is_not_here(acme: Company) -> None:
    globex = make_company("globex")
    project = acme.tenant.project_id

    touches: list[Callable[[], object]] = [
        lambda: facade.read_project(globex.owner, project),
        lambda: facade.update_project(globex.owner, project, name="stolen"),
        lambda: facade.close_project(globex.owner, project),
    ]
    for touch in touches:
        with pytest.raises(TenantObjectNotFound):
            touch()
    assert facade.read_project(acme.owner, project).name == "demo"


@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_a_limit_has_bounds(acme: Company, value: int) -> None:
    with pytest.raises(InvalidValue) as refusal:
        facade.open_project(acme.owner, "lab", MinuteLimits(tokens_max=value))
    assert refusal.value.param == "limits.tokens_max"
