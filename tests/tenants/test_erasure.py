"""An organization is deleted by its owner in two steps; its books and its log stay, nameless."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connections

from tenants import facade
from tenants.contracts import KeyRejected, OrganizationNotFound, PermissionDenied, Role
from tenants.contracts.retention import ErasureNotConfirmed
from tenants.models import Erasure, Mail, User
from tenants.retention.erasure import erase_due
from tests.tenants.people_cast import Company, make_company


@pytest.fixture
def acme(django_database: object) -> Company:
    """Who leaves."""
    erased()
    return make_company("acme")


def erased() -> None:
    """The task has nothing left to do."""
    while erase_due():
        pass


def leave(company: Company) -> None:
    """Both steps, and the task."""
    asked = facade.request_erasure(company.owner)
    facade.confirm_erasure(company.owner, asked.token, company.tenant.slug)
    erased()


def everything_of(organization_id: UUID) -> str:
    """All that the database holds of an organization, as text."""
    found: list[str] = []
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE a.attname = 'organization_id' AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace"
            " AND has_table_privilege(c.oid, 'SELECT')"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(
                f"SELECT to_json(t)::text FROM {table} t WHERE organization_id = %s",
                [organization_id],
            )
            found += [f"{table} {row[0]}" for row in cursor.fetchall()]
    return "\n".join(found)


def test_nothing_happens_before_the_second_step(acme: Company) -> None:
    facade.request_erasure(acme.owner)
    erased()

    assert facade.authenticate(acme.tenant.secret).organization_id == acme.tenant.organization_id


def test_only_an_owner_deletes_and_only_with_token_and_name(acme: Company) -> None:
    with pytest.raises(PermissionDenied):
        facade.request_erasure(acme.actor(Role.ADMIN))
    asked = facade.request_erasure(acme.owner)
    with pytest.raises(PermissionDenied):
        facade.confirm_erasure(acme.actor(Role.ADMIN), asked.token, acme.tenant.slug)
    for token, slug in (("wrong", acme.tenant.slug), (asked.token, "another")):
        with pytest.raises(ErasureNotConfirmed):
            facade.confirm_erasure(acme.owner, token, slug)
    newer = facade.request_erasure(acme.owner)
    with pytest.raises(ErasureNotConfirmed):
        facade.confirm_erasure(acme.owner, asked.token, acme.tenant.slug)
    Erasure.objects.using("housekeeper").filter(organization_id=acme.tenant.organization_id).update(
        token_expires_at=datetime.now(UTC)
    )
    with pytest.raises(ErasureNotConfirmed):
        facade.confirm_erasure(acme.owner, newer.token, acme.tenant.slug)

    facade.authenticate(acme.tenant.secret)


def test_another_owner_does_not_confirm_it(acme: Company) -> None:
    asked = facade.request_erasure(acme.owner)
    other = make_company("globex").people[Role.OWNER]
    facade.add_member(acme.tenant.organization_id, other.user_id, Role.OWNER)
    partner = replace(acme.owner, actor_id=other.user_id)
    with pytest.raises(ErasureNotConfirmed):
        facade.confirm_erasure(partner, asked.token, acme.tenant.slug)


def test_the_token_of_another_organization_confirms_nothing(acme: Company) -> None:
    globex = make_company("globex")
    facade.request_erasure(acme.owner)
    theirs = facade.request_erasure(globex.owner)
    with pytest.raises(ErasureNotConfirmed):
        facade.confirm_erasure(acme.owner, theirs.token, acme.tenant.slug)


def test_keys_die_with_the_confirmation(acme: Company) -> None:
    asked = facade.request_erasure(acme.owner)
    facade.confirm_erasure(acme.owner, asked.token, acme.tenant.slug)

    with pytest.raises(KeyRejected):
        facade.authenticate(acme.tenant.secret)


def test_names_go_and_the_log_still_verifies(acme: Company) -> None:
    organization_id = acme.tenant.organization_id
    facade.create_webhook_endpoint(acme.owner, "https://hooks.example.com/x")
    facade.invite(acme.owner, "guest@example.org", Role.VIEWER)
    facade.keep_exchange(organization_id, acme.tenant.project_id, uuid4(), b"p", b"a", 7)
    person = acme.people[Role.OWNER]
    facade.send_mail_later(None, person.email, "sign_in", {"body": "a link"})
    entries = facade.verify_audit_chain(organization_id).entries
    leave(acme)

    left = everything_of(organization_id)
    for table in ("webhook_endpoint", "exchange", "membership", "mail", "outbox_event"):
        assert f"tenants_{table} " not in left
    assert "tenants_audit_log " in left
    assert "@example.org" not in left
    verdict = facade.verify_audit_chain(organization_id)
    assert verdict.fault is None
    assert verdict.entries > entries
    with pytest.raises(OrganizationNotFound):
        _ = acme.owner
    assert not Mail.objects.using("housekeeper").filter(to_address=person.email).exists()
    user = User.objects.using("housekeeper").get(id=person.user_id)
    assert person.email != user.email
    assert (user.display_name, user.is_active, user.has_usable_password()) == ("", False, False)


def test_its_guests_lose_their_membership_and_nothing_else(acme: Company) -> None:
    leave(acme)

    for role, guest in acme.people.items():
        if role is not Role.OWNER:
            user = User.objects.using("housekeeper").get(id=guest.user_id)
            assert (user.email, user.is_active) == (guest.email, True)
            assert facade.memberships_of(guest.user_id) == []


def test_who_belongs_elsewhere_too_stays_a_person(acme: Company) -> None:
    globex = make_company("globex")
    boss = acme.people[Role.OWNER]
    facade.add_member(globex.tenant.organization_id, boss.user_id, Role.VIEWER)
    leave(acme)

    user = User.objects.using("housekeeper").get(id=boss.user_id)
    assert (user.email, user.is_active) == (boss.email, True)
    assert facade.authenticate(globex.tenant.secret)


def test_who_joins_another_while_the_first_one_goes_stays_a_person(acme: Company) -> None:
    globex = make_company("globex")
    boss = acme.people[Role.OWNER]

    def joins(organization_id: UUID) -> None:
        if organization_id == acme.tenant.organization_id:
            facade.add_member(globex.tenant.organization_id, boss.user_id, Role.VIEWER)

    facade.register_eraser("of a test", joins)
    try:
        leave(acme)
    finally:
        facade.register_eraser("of a test", lambda _: None)

    assert User.objects.using("housekeeper").get(id=boss.user_id).is_active
    [left] = facade.memberships_of(boss.user_id)
    assert left.organization.organization_id == globex.tenant.organization_id


def test_other_packages_forget_too_and_are_asked_again_after_a_failure(acme: Company) -> None:
    calls: list[UUID] = []
    persons: list[UUID] = []

    def fails_once(organization_id: UUID) -> None:
        calls.append(organization_id)
        if len(calls) == 1:
            raise OSError("away")

    facade.register_eraser("of a test", fails_once)
    facade.register_person_eraser("of a test", persons.append)
    try:
        with pytest.raises(OSError, match="away"):
            leave(acme)
        erased()
    finally:
        facade.register_eraser("of a test", lambda _: None)
        facade.register_person_eraser("of a test", lambda _: None)

    assert calls == [acme.tenant.organization_id] * 2
    assert persons == [acme.people[Role.OWNER].user_id]
    assert "organization.erased" in everything_of(acme.tenant.organization_id)


def test_a_confirmed_deletion_is_not_taken_back(acme: Company) -> None:
    asked = facade.request_erasure(acme.owner)
    facade.confirm_erasure(acme.owner, asked.token, acme.tenant.slug)
    for alias in ("default", "housekeeper"):
        with (
            pytest.raises(IntegrityError, match="goes on"),
            facade.tenant_scope(acme.tenant.organization_id, alias),
        ):
            Erasure.objects.using(alias).filter(organization_id=acme.tenant.organization_id).update(
                confirmed_at=None
            )
