"""Who I am, where I belong, and founding an organization."""

from functools import partial
from uuid import UUID

import pytest
from django.conf import settings
from django.db import ProgrammingError, connections
from django.test import override_settings

from billing.facade import balance
from tenants.contracts import Role
from tenants.facade import list_audit, operator_of
from tests.billing.cast import at_once
from tests.books import rows
from tests.headrace.door import Door, member_of, new_user
from tests.tenants.cast import make_tenant

pytestmark = pytest.mark.usefixtures("django_database")


def found(door: Door, **body: object) -> UUID:
    answer = door.post("/api/v1/organizations", json={"display_name": "Acme", **body})
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["id"])


def test_who_founds_an_organization_owns_it_and_its_account_is_open() -> None:
    user_id = new_user()
    door = Door().sign_in(user_id)
    before = door.get("/api/v1/me").json()
    organization_id = found(door, currency="EUR")
    [mine] = door.get("/api/v1/me").json()["organizations"]

    assert before["organizations"] == []
    assert before["id"] == str(user_id)
    assert mine["id"] == str(organization_id)
    assert (mine["role"], mine["currency"]) == ("owner", "EUR")
    assert "organization.delete" in mine["permissions"]
    assert balance(organization_id).posted_pico == 0
    [entry] = list_audit(operator_of(organization_id))
    assert (entry.action, entry.actor_id) == ("organization.created", user_id)


def test_me_lists_the_organizations_of_the_person_alone() -> None:
    acme, globex = make_tenant("acme"), make_tenant("globex")
    door = member_of(acme.organization_id, Role.VIEWER)
    member_of(globex.organization_id, Role.OWNER)

    listed = door.get("/api/v1/me").json()["organizations"]
    assert [(one["id"], one["role"]) for one in listed] == [(str(acme.organization_id), "viewer")]


def test_a_taken_name_founds_nothing() -> None:
    acme, door = make_tenant("acme"), Door().sign_in(new_user())
    answer = door.post("/api/v1/organizations", json={"display_name": "Acme", "slug": acme.slug})

    assert answer.status_code == 409
    assert door.get("/api/v1/me").json()["organizations"] == []


@override_settings(ORGANIZATIONS_PER_USER_MAX=2)
def test_a_crowd_founds_no_more_than_one_person_may() -> None:
    user_id = new_user()
    doors = [Door().sign_in(user_id) for _ in range(8)]

    def found_one(door: Door) -> int:
        return door.post("/api/v1/organizations", json={"display_name": "A"}).status_code

    statuses = at_once([partial(found_one, door) for door in doors])

    assert sorted(statuses) == [201] * 2 + [409] * 6
    assert len(doors[0].get("/api/v1/me").json()["organizations"]) == 2


@pytest.mark.parametrize(
    "field",
    ["id", "organization_id", "role", "status", "balance", "is_staff", "requests_per_minute_max"],
)
def test_what_is_ours_to_set_is_refused(field: str) -> None:
    door = Door().sign_in(new_user())
    answer = door.post("/api/v1/organizations", json={"display_name": "Acme", field: "1"})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_a_key_is_nobody() -> None:
    door = Door(make_tenant("acme").secret)
    answers = [
        door.get("/api/v1/me"),
        door.post("/api/v1/organizations", json={"display_name": "Acme"}),
    ]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert Door().get("/api/v1/me").status_code == 401


def test_a_session_writes_with_its_token_only() -> None:
    door = Door().sign_in(new_user())
    answer = door.post(
        "/api/v1/organizations", json={"display_name": "A"}, headers={"x-csrftoken": "0" * 32}
    )

    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "csrf_failed"


def test_a_deactivated_person_has_no_session() -> None:
    user_id = new_user()
    door = Door().sign_in(user_id)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("UPDATE tenants_user SET is_active = false WHERE id = %s", [user_id])

    assert door.get("/api/v1/me").status_code == 401
    assert settings.SESSION_COOKIE_HTTPONLY


def staff() -> list[tuple[UUID]]:
    return rows("SELECT id FROM tenants_user WHERE is_staff OR is_superuser ORDER BY id")


STAFF_MADE = """
    INSERT INTO tenants_user (id, password, email, display_name, is_active, is_staff, is_superuser)
    SELECT uuidv7(), '', 'staff@' || email, '', true, true, false
      FROM tenants_user WHERE id = %s"""


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants_user SET is_staff = true WHERE id = %s",
        "UPDATE tenants_user SET is_superuser = true WHERE id = %s",
        STAFF_MADE,
        "DELETE FROM tenants_user WHERE id = %s",
    ],
)
def test_the_app_makes_nobody_staff_and_deletes_nobody(statement: str) -> None:
    user_id, staff_before = new_user(), staff()
    with (
        connections["default"].cursor() as cursor,
        pytest.raises(ProgrammingError, match=r"makes nobody staff|permission denied for table"),
    ):
        cursor.execute(statement, [user_id])

    assert staff() == staff_before
    assert rows("SELECT is_staff FROM tenants_user WHERE id = %s", user_id) == [(False,)]


def test_nobody_founds_an_address_on_the_web() -> None:
    door = Door().sign_in(new_user())
    answer = door.post("/api/v1/organizations", json={"display_name": "Look at evil.example"})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "display_name"
    assert door.get("/api/v1/me").json()["organizations"] == []
