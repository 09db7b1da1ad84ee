"""Settings, projects, exports and the end of an organization on pages."""

from datetime import UTC, datetime
from uuid import UUID

import httpx
import pytest

from tenants import facade
from tenants.contracts import (
    KeyRejected,
    MinuteLimits,
    OrganizationSettings,
    ProjectArchived,
    ProjectInfo,
    Role,
)
from tenants.retention.exports import write_due_export
from tests.headrace.door import Door, member_of
from tests.headrace.signing_in import add_authenticator, new_address, sign_in, sign_up
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose settings these are."""
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant) -> Door:
    """Its owner, who has just signed in."""
    return member_of(acme.organization_id, Role.OWNER)


def at(tenant: Tenant, path: str = "settings") -> str:
    return f"/console/{tenant.slug}/{path}"


def settings_of(tenant: Tenant) -> OrganizationSettings:
    return facade.read_organization(facade.operator_of(tenant.organization_id))


def projects_of(tenant: Tenant) -> list[ProjectInfo]:
    return facade.list_projects(facade.operator_of(tenant.organization_id), with_archived=True)


def save(door: Door, tenant: Tenant, **fields: str) -> httpx.Response:
    given = {"do": "save", "display_name": "acme", "time_zone": "UTC"}
    return door.post(at(tenant), data=given | fields)


def test_settings_are_saved_as_asked(acme: Tenant, owner: Door) -> None:
    answer = save(
        *(owner, acme),
        display_name="Acme II",
        time_zone="Asia/Tokyo",
        cost_tags="team\nfeature",
        cache_per_project="on",
        prompts_kept_days="30",
    )
    saved = settings_of(acme)

    assert answer.status_code == 303
    assert (saved.display_name, saved.time_zone) == ("Acme II", "Asia/Tokyo")
    assert saved.cost_tags == ("feature", "team")
    assert (saved.cache_per_project, saved.prompts_kept_days) == (True, 30)
    assert "Times are Asia/Tokyo" in owner.get(at(acme)).text


def test_what_is_left_as_it_was_stays(acme: Tenant, owner: Door) -> None:
    save(owner, acme, cost_tags="team", prompts_kept_days="30")
    before = settings_of(acme)
    save(owner, acme, cost_tags="team", prompts_kept_days="30")

    assert settings_of(acme) == before
    save(owner, acme)
    assert settings_of(acme).prompts_kept_days is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"display_name": ""}, "display_name"),
        ({"display_name": "see http://evil.example"}, "display_name"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"cost_tags": "a/b"}, "cost_tags"),
        ({"prompts_kept_days": "9999"}, "prompts_kept_days"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    acme: Tenant, owner: Door, fields: dict[str, str], field: str
) -> None:
    before = settings_of(acme)
    answer = save(owner, acme, **fields)

    assert answer.status_code == 422
    assert f'id="id_{field}_error"' in answer.text
    assert settings_of(acme) == before


def test_only_who_has_a_second_factor_demands_one(acme: Tenant, owner: Door) -> None:
    save(owner, acme, second_factor_required="on")
    without = settings_of(acme).second_factor_required
    address = new_address()
    careful = sign_up(address)
    sign_in(careful, address)
    add_authenticator(careful)
    user_id = UUID(careful.get("/api/v1/me").json()["id"])
    facade.add_member(acme.organization_id, user_id, Role.OWNER)
    save(careful, acme, second_factor_required="on")

    assert not without
    assert settings_of(acme).second_factor_required


def test_a_viewer_reads_settings_and_saves_none(acme: Tenant) -> None:
    page = member_of(acme.organization_id, Role.VIEWER).get(at(acme)).text

    assert "Save settings" not in page
    assert "Delete the organization" not in page


def test_a_project_is_made_limited_renamed_and_archived(acme: Tenant, owner: Door) -> None:
    made = owner.post(at(acme, "projects"), data={"do": "create", "name": "fresh"})
    project = next(one for one in projects_of(acme) if one.name == "fresh")
    path = at(acme, f"projects/{project.project_id}")
    edited = owner.post(
        f"{path}/edit", data={"do": "save", "name": "renamed", "limits_requests_max": "7"}
    )
    changed = next(one for one in projects_of(acme) if one.project_id == project.project_id)

    assert (made.status_code, made.headers["location"]) == (303, path)
    assert edited.status_code == 303
    assert (changed.name, changed.limits) == ("renamed", MinuteLimits(requests_max=7))
    assert "7 req/min" in owner.get(path).text


def test_an_archived_project_stops_its_keys(acme: Tenant, owner: Door) -> None:
    path = at(acme, f"projects/{acme.project_id}")
    wrong = owner.post(path, data={"do": "archive", "confirm": "other"})
    still = facade.authenticate(acme.secret).key_id
    right = owner.post(path, data={"do": "archive", "confirm": "demo"})

    assert (wrong.status_code, still) == (422, acme.key_id)
    assert right.status_code == 303
    with pytest.raises(ProjectArchived):
        facade.authenticate(acme.secret)
    assert str(acme.project_id) not in owner.get(at(acme, "projects")).text
    assert str(acme.project_id) in owner.get(at(acme, "projects?archived=1")).text
    assert "project archived" in owner.get(at(acme, "keys")).text


def test_a_project_without_a_name_is_sent_back(acme: Tenant, owner: Door) -> None:
    answer = owner.post(at(acme, "projects"), data={"do": "create", "name": " "})

    assert answer.status_code == 422
    assert 'id="id_name_error"' in answer.text


def test_an_export_is_asked_for_once_written_and_downloaded(acme: Tenant, owner: Door) -> None:
    while write_due_export(datetime.now(UTC)):
        pass
    first = owner.post(at(acme, "settings/data"), data={"do": "request"})
    pending = owner.get(at(acme, "settings/data")).text
    owner.post(at(acme, "settings/data"), data={"do": "request"})
    write_due_export(datetime.now(UTC))
    [export] = facade.list_exports(facade.operator_of(acme.organization_id))
    href = at(acme, f"settings/data/{export.export_id}")
    ready = owner.get(at(acme, "settings/data")).text
    answer = owner.get(href)

    assert first.status_code == 303
    assert "Being written" in pending
    assert href in ready
    assert answer.headers["content-type"] == "application/zip"
    assert len(answer.content) == export.size_bytes


def test_a_download_wants_a_recent_sign_in(acme: Tenant) -> None:
    while write_due_export(datetime.now(UTC)):
        pass
    export = facade.request_export(facade.operator_of(acme.organization_id))
    write_due_export(datetime.now(UTC))
    long_ago = member_of(acme.organization_id, Role.OWNER, seconds_ago=3600)
    answer = long_ago.get(at(acme, f"settings/data/{export.export_id}"))

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/accounts/reauthenticate/?next=")


def test_an_organization_ends_in_two_steps(acme: Tenant, owner: Door) -> None:
    path = at(acme, "settings/delete")
    asked = owner.post(path, data={"do": "ask"}).text
    token = asked.partition('name="token" value="')[2].partition('"')[0]
    wrong = owner.post(path, data={"do": "confirm", "token": token, "confirm": "other"})
    stale = owner.post(path, data={"do": "confirm", "token": "x", "confirm": acme.slug})
    still = facade.authenticate(acme.secret).key_id
    right = owner.post(path, data={"do": "confirm", "token": token, "confirm": acme.slug})

    assert (wrong.status_code, stale.status_code, still) == (422, 422, acme.key_id)
    assert (right.status_code, right.headers["location"]) == (303, "/console/")
    with pytest.raises(KeyRejected):
        facade.authenticate(acme.secret)
