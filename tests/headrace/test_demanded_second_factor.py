"""An organization that demands a second factor: who may demand it, and what it does to members.

That no route opens without one is in the isolation matrix.
"""

from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.db import connections

from tenants.contracts import Role
from tenants.facade import AuditFilter, add_member, list_audit, operator_of
from tests.headrace.door import Door, admin_key, member_of
from tests.headrace.signing_in import add_authenticator, new_address, sign_in, sign_up
from tests.house import new_tenant

pytestmark = pytest.mark.usefixtures("django_database", "crowd")
DEMAND = {"second_factor_required": True}


def path_of(organization_id: UUID) -> str:
    return f"/api/v1/organizations/{organization_id}"


def person(organization_id: UUID, role: Role, *, with_factor: bool) -> Door:
    """Signs up and in by the forms, and joins."""
    address = new_address()
    door = sign_up(address)
    sign_in(door, address)
    if with_factor:
        add_authenticator(door)
    user = get_user_model()._default_manager.get(email=address)
    add_member(organization_id, user.pk, role)
    return door


def is_demanded(organization_id: UUID) -> bool:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT second_factor_required FROM tenants_organization WHERE id = %s",
            [organization_id],
        )
        return bool(cursor.fetchone()[0])


def test_whoever_has_one_may_demand_one_and_it_is_audited() -> None:
    acme = new_tenant().organization_id
    owner = person(acme, Role.OWNER, with_factor=True)
    member = person(acme, Role.DEVELOPER, with_factor=False)
    before = member.get(path_of(acme))
    answer = owner.patch(path_of(acme), json=DEMAND)

    assert before.json()["second_factor_required"] is False
    assert (answer.status_code, answer.json()["second_factor_required"]) == (200, True)
    assert is_demanded(acme)
    refused = member.get(path_of(acme))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "second_factor_required")
    entries = list_audit(operator_of(acme), AuditFilter(actions=("organization.updated",)))
    assert entries[0].details == {"second_factor_required": {"from": False, "to": True}}


def test_a_member_gets_in_again_with_a_factor_of_their_own() -> None:
    acme = new_tenant().organization_id
    person(acme, Role.ADMIN, with_factor=True).patch(path_of(acme), json=DEMAND)
    member = person(acme, Role.VIEWER, with_factor=False)
    before = member.get(path_of(acme)).status_code
    reached = member.get("/api/v1/me").status_code
    add_authenticator(member)

    assert (before, reached) == (403, 200)
    assert member.get(path_of(acme)).status_code == 200


def test_nobody_demands_what_they_do_not_have() -> None:
    acme = new_tenant().organization_id
    owner = person(acme, Role.OWNER, with_factor=False)
    with_factor = person(acme, Role.DEVELOPER, with_factor=True)
    key = Door(admin_key(acme))
    answers = [door.patch(path_of(acme), json=DEMAND) for door in (owner, key, with_factor)]

    assert [(one.status_code, one.json()["error"]["code"]) for one in answers] == [
        (403, "second_factor_required"),
        (403, "second_factor_required"),
        (403, "insufficient_permissions"),
    ]
    assert not is_demanded(acme)


def test_the_demand_wants_a_recent_sign_in() -> None:
    acme = new_tenant().organization_id
    answer = member_of(acme, Role.OWNER, seconds_ago=3600).patch(path_of(acme), json=DEMAND)

    assert answer.json()["error"]["code"] == "reauthentication_required"


def test_keys_work_and_who_has_no_factor_may_leave() -> None:
    acme = new_tenant().organization_id
    person(acme, Role.OWNER, with_factor=True).patch(path_of(acme), json=DEMAND)
    member = person(acme, Role.VIEWER, with_factor=False)

    assert Door(admin_key(acme)).get(path_of(acme)).status_code == 200
    assert member.delete(f"/api/v1/me/organizations/{acme}").status_code == 204
