"""An invitation ends with the right to make it, whoever ends that."""

import pytest
from django.db import IntegrityError, connections

from tenants import facade
from tenants.contracts import (
    Actor,
    InvitationNotFound,
    IssuedInvitation,
    Permission,
    Role,
)
from tests.headrace.door import Door
from tests.tenants.people_cast import Company, Person, make_company, make_person


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization that takes rights away."""
    return make_company("acme")


@pytest.fixture
def mallory(acme: Company) -> Person:
    """Another owner of it."""
    person = make_person("mallory")
    facade.add_member(acme.tenant.organization_id, person.user_id, Role.OWNER)
    return person


def offer(actor: Actor, role: Role) -> IssuedInvitation:
    """An invitation of somebody new."""
    return facade.invite(actor, make_person("accomplice").email, role)


def is_open(issued: IssuedInvitation) -> bool:
    """Whether its token still offers a place."""
    try:
        facade.invitation_offer(issued.token)
    except InvitationNotFound:
        return False
    return True


def admin_key_of(actor: Actor, *permissions: Permission) -> tuple[Actor, str]:
    """An admin key that the actor makes, as an actor too, and its secret."""
    issued = facade.create_admin_key(actor, "key", frozenset(permissions or Permission))
    return facade.actor_for_key(facade.authenticate(issued.secret)), issued.secret


def test_what_a_removed_owner_offered_is_gone(acme: Company, mallory: Person) -> None:
    accomplice = make_person("accomplice")
    issued = facade.invite(mallory.at(acme.tenant), accomplice.email, Role.OWNER)
    others = offer(acme.owner, Role.OWNER)

    facade.remove_member(acme.owner, mallory.user_id)

    accepting = Door().sign_in(accomplice.user_id)
    answer = accepting.post("/api/v1/invitations/accept", json={"token": issued.token})
    assert answer.status_code == 404
    assert facade.memberships_of(accomplice.user_id) == []
    stored = facade.read_invitation(acme.owner, issued.invitation.invitation_id)
    assert stored.revoked_at is not None and stored.email is None
    [entry] = [one for one in facade.list_audit(acme.owner) if one.action == "invitation.revoked"]
    assert entry.target_id == str(issued.invitation.invitation_id)
    assert is_open(others)


def test_what_somebody_offered_who_leaves_is_gone(acme: Company, mallory: Person) -> None:
    issued = offer(mallory.at(acme.tenant), Role.VIEWER)

    facade.remove_member(mallory.at(acme.tenant), mallory.user_id)

    assert not is_open(issued)


def test_of_a_demoted_owners_offers_those_within_the_new_role_stand(
    acme: Company, mallory: Person
) -> None:
    as_owner, as_admin = (offer(mallory.at(acme.tenant), role) for role in (Role.OWNER, Role.ADMIN))

    facade.change_role(acme.owner, mallory.user_id, Role.ADMIN)
    after_first = (is_open(as_owner), is_open(as_admin))
    facade.change_role(acme.owner, mallory.user_id, Role.DEVELOPER)

    assert after_first == (False, True)
    assert not is_open(as_admin)


def test_what_an_admin_key_offered_is_gone_with_the_key(acme: Company) -> None:
    actor, _ = admin_key_of(acme.owner)
    issued = offer(actor, Role.OWNER)
    assert actor.actor_id is not None

    facade.revoke_key_as(acme.owner, actor.actor_id)

    assert not is_open(issued)


def test_what_a_rotated_key_offered_is_gone_with_its_successor(acme: Company) -> None:
    actor, _ = admin_key_of(acme.owner)
    issued = offer(actor, Role.OWNER)
    assert actor.actor_id is not None

    successor = facade.rotate_key(acme.owner, actor.actor_id)
    after_rotation = is_open(issued)
    facade.revoke_key_as(acme.owner, successor.key_id)

    assert (after_rotation, is_open(issued)) == (True, False)


def test_what_the_key_of_a_removed_owner_offered_is_gone(acme: Company, mallory: Person) -> None:
    actor, _ = admin_key_of(mallory.at(acme.tenant))
    issued = offer(actor, Role.OWNER)

    facade.remove_member(acme.owner, mallory.user_id)

    assert not is_open(issued)


@pytest.mark.parametrize(
    ("table", "column"),
    [("tenants_invitation", "revoked_at"), ("tenants_service_account", "disabled_at")],
)
@pytest.mark.parametrize("value", ["NULL", "now()"])
def test_what_has_ended_is_for_good(acme: Company, table: str, column: str, value: str) -> None:
    account = facade.create_service_account(acme.owner, acme.tenant.project_id, "robot")
    facade.disable_service_account(acme.owner, account.service_account_id)
    facade.revoke_invitation(acme.owner, offer(acme.owner, Role.VIEWER).invitation.invitation_id)

    with (
        pytest.raises(IntegrityError),
        facade.tenant_scope(acme.tenant.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(f"UPDATE {table} SET {column} = {value}")
