"""A right that was taken gives nothing any more, not even to what was begun before."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from tenants import facade
from tenants.contracts import (
    Actor,
    KeyKind,
    KeyRejected,
    KeySettings,
    OrganizationNotFound,
    OrganizationStatus,
    Permission,
    PermissionDenied,
    Role,
    TenantError,
)
from tests.billing.cast import at_once
from tests.tenants.people_cast import Company, make_company, make_person

ROUNDS = 6


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization that takes rights away."""
    return make_company("acme")


def second_owner(company: Company) -> Actor:
    """Another owner, as a request that began now knows them."""
    person = make_person("mallory")
    facade.add_member(company.tenant.organization_id, person.user_id, Role.OWNER)
    return person.at(company.tenant)


def key_actor(company: Company, *permissions: Permission) -> Actor:
    """An admin key with these permissions, or all of them, in the same way."""
    issued = facade.create_admin_key(company.owner, "key", frozenset(permissions or Permission))
    return facade.actor_for_key(facade.authenticate(issued.secret))


def acts(company: Company, actor: Actor) -> dict[str, Callable[[], object]]:
    """All that makes or widens a right, or takes one from others."""
    tenant, viewer = company.tenant, company.people[Role.VIEWER].user_id
    settings = KeySettings(name="late")
    return {
        "admin key": partial(facade.create_admin_key, actor, "late", frozenset(Permission)),
        "key": partial(facade.create_key, actor, tenant.project_id, settings),
        "rotation": partial(facade.rotate_key, actor, tenant.key_id),
        "change of a key": partial(facade.update_key, actor, tenant.key_id, lambda _: settings),
        "revocation": partial(facade.revoke_key_as, actor, tenant.key_id),
        "account": partial(facade.create_service_account, actor, tenant.project_id, "late"),
        "invitation": partial(facade.invite, actor, "late@example.org", Role.OWNER),
        "role": partial(facade.change_role, actor, viewer, Role.OWNER),
        "removal": partial(facade.remove_member, actor, viewer),
    }


def rights(company: Company) -> list[object]:
    """All that stands in the organization."""
    owner = company.owner
    return [
        *facade.list_keys(owner, KeyKind.ADMIN),
        *facade.list_keys(owner, KeyKind.PROJECT),
        *facade.list_service_accounts(owner),
        *facade.list_invitations(owner),
        *facade.list_members(owner),
    ]


def refusals(company: Company, actor: Actor) -> set[type[Exception]]:
    """How all of them are refused; each of them must be, and must leave nothing behind."""
    before = rights(company)
    refused: set[type[Exception]] = set()
    for act in acts(company, actor).values():
        with pytest.raises(TenantError) as refusal:
            act()
        refused.add(refusal.type)
    assert rights(company) == before
    return refused


def test_who_was_removed_in_the_middle_of_a_request_makes_nothing(acme: Company) -> None:
    mallory = second_owner(acme)
    assert mallory.actor_id is not None
    facade.remove_member(acme.owner, mallory.actor_id)

    assert refusals(acme, mallory) == {OrganizationNotFound}


def test_who_was_demoted_in_the_middle_of_a_request_makes_nothing(acme: Company) -> None:
    mallory = second_owner(acme)
    assert mallory.actor_id is not None
    facade.change_role(acme.owner, mallory.actor_id, Role.VIEWER)

    assert refusals(acme, mallory) == {PermissionDenied}


def test_a_key_that_was_revoked_in_the_middle_of_a_request_makes_nothing(acme: Company) -> None:
    key = key_actor(acme)
    assert key.actor_id is not None
    facade.revoke_key_as(acme.owner, key.actor_id)

    assert refusals(acme, key) == {KeyRejected}


def test_in_a_closed_organization_nobody_makes_anything(acme: Company) -> None:
    owner, key = acme.owner, key_actor(acme)
    facade.set_organization_status(acme.tenant.organization_id, OrganizationStatus.CLOSED)

    for actor in (owner, key):
        for act in acts(acme, actor).values():
            with pytest.raises(OrganizationNotFound):
                act()


def test_who_was_promoted_in_the_middle_of_a_request_gains_nothing_by_it(acme: Company) -> None:
    viewer = acme.actor(Role.VIEWER)
    facade.change_role(acme.owner, acme.people[Role.VIEWER].user_id, Role.OWNER)

    with pytest.raises(PermissionDenied):
        facade.create_key(viewer, acme.tenant.project_id, KeySettings(name="early"))


def test_no_admin_key_outlives_a_removal_at_the_same_moment(acme: Company) -> None:
    for _ in range(ROUNDS):
        mallory = second_owner(acme)
        assert mallory.actor_id is not None

        def make(actor: Actor = mallory) -> None:
            with suppress(OrganizationNotFound):
                facade.create_admin_key(actor, "late", frozenset(Permission))

        removal = partial(facade.remove_member, acme.owner, mallory.actor_id)
        crowd: list[Callable[[], None]] = [make, make, make, removal, make, make, make]
        at_once(crowd)

        made = facade.list_keys(acme.owner, KeyKind.ADMIN)
        assert [key for key in made if key.revoked_at is None] == []


def test_two_owners_who_demote_each_other_at_once_do_not_both_succeed(acme: Company) -> None:
    for _ in range(ROUNDS):
        one, other = second_owner(acme), second_owner(acme)
        assert one.actor_id is not None and other.actor_id is not None

        def demote(actor: Actor, target: Actor) -> bool:
            assert target.actor_id is not None
            try:
                facade.change_role(actor, target.actor_id, Role.VIEWER)
            except PermissionDenied:
                return False
            return True

        done = at_once([partial(demote, one, other), partial(demote, other, one)])

        assert sorted(done) == [False, True]
