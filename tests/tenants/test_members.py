"""Members act by their role, at once; nobody reaches above themselves; an owner always stays."""

import itertools
from contextlib import suppress
from functools import partial
from uuid import UUID

import pytest

from tenants import facade
from tenants.contracts import (
    Actor,
    KeyKind,
    KeyRejected,
    LastOwner,
    OrganizationNotFound,
    OrganizationStatus,
    Permission,
    PermissionDenied,
    Role,
    TenantConflict,
    TenantObjectNotFound,
)
from tenants.models import Membership
from tests.billing.cast import at_once
from tests.headrace.door import Door
from tests.tenants.people_cast import Company, make_company, make_person


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization whose members these are."""
    return make_company("acme")


def roles(company: Company) -> dict[str, int]:
    """How many members are stored in each role."""
    with facade.tenant_scope(company.tenant.organization_id):
        stored = list(Membership.objects.values_list("role", flat=True))
    return {role: stored.count(role) for role in stored}


def test_a_role_is_what_its_row_of_the_table_allows(acme: Company) -> None:
    for role in Role:
        assert acme.actor(role).permissions == facade.ROLE_PERMISSIONS[role]


def test_only_owners_may_delete_and_only_billing_people_may_pay() -> None:
    def having(permission: Permission) -> set[Role]:
        return {role for role, allowed in facade.ROLE_PERMISSIONS.items() if permission in allowed}

    assert having(Permission.ORGANIZATION_DELETE) == {Role.OWNER}
    assert having(Permission.BILLING_WRITE) == {Role.OWNER, Role.ADMIN, Role.BILLING}
    assert having(Permission.MEMBERS_WRITE) == {Role.OWNER, Role.ADMIN}
    assert having(Permission.USAGE_READ) == set(Role)
    assert not any(name.endswith("write") for name in facade.ROLE_PERMISSIONS[Role.VIEWER])


def test_a_stranger_is_told_that_there_is_no_such_organization(acme: Company) -> None:
    with pytest.raises(OrganizationNotFound):
        make_person().at(acme.tenant)


def test_a_closed_organization_is_gone_for_its_members_too(acme: Company) -> None:
    organization_id = acme.tenant.organization_id
    facade.set_organization_status(organization_id, OrganizationStatus.CLOSED)

    with pytest.raises(OrganizationNotFound):
        acme.actor(Role.OWNER)
    assert facade.memberships_of(acme.people[Role.OWNER].user_id) == []


def test_where_many_stand_is_one_question(acme: Company) -> None:
    globex = make_company("globex")
    here, there = acme.tenant.organization_id, globex.tenant.organization_id
    owner, viewer, ended = (
        acme.people[role].user_id for role in (Role.OWNER, Role.VIEWER, Role.ADMIN)
    )
    facade.remove_member(facade.operator_of(here), ended)
    places = [(owner, here), (viewer, here), (owner, there), (ended, here)]

    standing = facade.standing_among(places)

    assert set(standing) == {(owner, here), (viewer, here)}
    assert standing[viewer, here].permissions == facade.ROLE_PERMISSIONS[Role.VIEWER]
    assert not standing[owner, here].second_factor_required
    assert facade.standing_among([]) == {}


def test_members_are_listed_in_pages_by_those_who_may(acme: Company) -> None:
    everybody = facade.list_members(acme.owner)
    first = facade.list_members(acme.owner, rows_max=2, ascending=True)
    rest = facade.list_members(acme.owner, after=first[-1].user_id, ascending=True)

    assert {member.email for member in everybody} == {one.email for one in acme.people.values()}
    assert [*first, *rest] == everybody[::-1]
    with pytest.raises(PermissionDenied):
        facade.list_members(acme.actor(Role.VIEWER))


def test_a_member_of_another_organization_is_not_here(acme: Company) -> None:
    globex = make_company("globex")
    stranger = globex.people[Role.ADMIN].user_id

    for touch in (
        lambda: facade.read_member(acme.owner, stranger),
        lambda: facade.change_role(acme.owner, stranger, Role.VIEWER),
        lambda: facade.remove_member(acme.owner, stranger),
    ):
        with pytest.raises(TenantObjectNotFound):
            touch()
    assert globex.actor(Role.ADMIN).permissions == facade.ROLE_PERMISSIONS[Role.ADMIN]


def test_a_new_role_counts_from_the_next_call_on(acme: Company) -> None:
    developer = acme.people[Role.DEVELOPER]

    changed = facade.change_role(acme.owner, developer.user_id, Role.VIEWER)

    assert changed.role is Role.VIEWER
    assert developer.at(acme.tenant).permissions == facade.ROLE_PERMISSIONS[Role.VIEWER]


def test_a_removed_member_is_a_stranger_at_once(acme: Company) -> None:
    developer = acme.people[Role.DEVELOPER]

    facade.remove_member(acme.actor(Role.ADMIN), developer.user_id)

    with pytest.raises(OrganizationNotFound):
        developer.at(acme.tenant)


def test_anybody_may_leave_but_the_last_owner(acme: Company) -> None:
    organization = f"/api/v1/me/organizations/{acme.tenant.organization_id}"
    answers = {
        role: Door().sign_in(acme.people[role].user_id).delete(organization)
        for role in (Role.VIEWER, Role.OWNER)
    }

    assert answers[Role.VIEWER].status_code == 204
    assert answers[Role.OWNER].json()["error"]["code"] == "conflict"
    assert roles(acme) == {"owner": 1, "admin": 1, "developer": 1, "billing": 1}


ABOVE = [(Role.ADMIN, Role.OWNER), (Role.DEVELOPER, Role.VIEWER), (Role.BILLING, Role.VIEWER)]


@pytest.mark.parametrize(("actor", "target"), ABOVE)
def test_nobody_changes_or_removes_whom_they_may_not(
    acme: Company, actor: Role, target: Role
) -> None:
    before = roles(acme)
    for act in (
        lambda: facade.change_role(acme.actor(actor), acme.people[target].user_id, Role.VIEWER),
        lambda: facade.remove_member(acme.actor(actor), acme.people[target].user_id),
        lambda: facade.change_role(acme.actor(actor), acme.people[actor].user_id, Role.OWNER),
    ):
        with pytest.raises(PermissionDenied):
            act()
    assert roles(acme) == before


def test_the_last_owner_can_neither_leave_nor_step_down(acme: Company) -> None:
    owner = acme.people[Role.OWNER].user_id

    with pytest.raises(LastOwner):
        facade.remove_member(acme.owner, owner)
    with pytest.raises(LastOwner):
        facade.change_role(acme.owner, owner, Role.ADMIN)
    assert roles(acme)["owner"] == 1


@pytest.mark.parametrize("way", ["leave", "step down"])
def test_of_owners_who_all_go_at_once_one_stays(acme: Company, way: str) -> None:
    others = [make_person("owner") for _ in range(7)]
    for other in others:
        facade.add_member(acme.tenant.organization_id, other.user_id, Role.OWNER)
    actors = [one.at(acme.tenant) for one in [*others, acme.people[Role.OWNER]]]

    def go(actor: Actor) -> bool:
        assert actor.actor_id is not None
        try:
            if way == "leave":
                facade.remove_member(actor, actor.actor_id)
            else:
                facade.change_role(actor, actor.actor_id, Role.VIEWER)
        except LastOwner:
            return False
        return True

    went = at_once([partial(go, actor) for actor in actors])

    assert sorted(went) == [False] + [True] * 7
    assert roles(acme)["owner"] == 1


def test_admin_keys_end_with_the_rights_they_came_from(acme: Company) -> None:
    admin = acme.people[Role.ADMIN]
    few, many = (
        facade.create_admin_key(admin.at(acme.tenant), "key", permissions)
        for permissions in (
            frozenset({Permission.USAGE_READ}),
            frozenset({Permission.MEMBERS_WRITE, Permission.KEYS_WRITE, Permission.KEYS_READ}),
        )
    )
    second_hand = facade.create_admin_key(
        facade.actor_for_key(facade.authenticate(many.secret)),
        "made by a key",
        frozenset({Permission.KEYS_READ}),
    )

    facade.change_role(acme.owner, admin.user_id, Role.VIEWER)
    assert facade.authenticate(few.secret).permissions == {Permission.USAGE_READ}
    with pytest.raises(KeyRejected):
        facade.authenticate(many.secret)

    facade.remove_member(acme.owner, admin.user_id)
    for issued in (few, second_hand):
        with pytest.raises(KeyRejected):
            facade.authenticate(issued.secret)
    assert all(key.revoked_at for key in facade.list_keys(acme.owner, KeyKind.ADMIN))


def test_who_loses_many_keys_stands_in_no_ones_way(acme: Company) -> None:
    admin, owner = acme.people[Role.ADMIN], acme.owner
    keys = [
        facade.create_admin_key(
            admin.at(acme.tenant), "key", frozenset({Permission.MEMBERS_WRITE})
        ).key_id
        for _ in range(6)
    ]

    def rotate(key_id: UUID) -> None:
        with suppress(TenantConflict):
            facade.rotate_key(owner, key_id, grace_s=60)

    at_once(
        [
            partial(facade.remove_member, owner, admin.user_id),
            *(partial(rotate, key_id) for key_id in reversed(keys)),
        ]
    )

    assert facade.revoked_among(keys) == set(keys)
    assert facade.verify_audit_chain(acme.tenant.organization_id).fault is None


def test_keys_of_projects_outlive_their_makers_membership(acme: Company) -> None:
    developer = acme.people[Role.DEVELOPER]
    issued = facade.issue_key(acme.tenant.organization_id, acme.tenant.project_id, "shared")

    facade.remove_member(acme.owner, developer.user_id)

    assert facade.authenticate(issued.secret).key_id == issued.key_id


def test_every_role_includes_the_viewers_rights() -> None:
    for role, other in itertools.product(Role, [Role.VIEWER]):
        assert facade.ROLE_PERMISSIONS[other] <= facade.ROLE_PERMISSIONS[role]
