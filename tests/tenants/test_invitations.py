"""An invitation brings one person, of one address, into one role, once."""

import pytest
from django.db import connections

from tenants import facade
from tenants.contracts import (
    InvalidValue,
    InvitationForAnother,
    InvitationNotFound,
    IssuedInvitation,
    PermissionDenied,
    Role,
    TenantConflict,
)
from tenants.people.invitations import INVITATIONS_PER_DAY_MAX
from tenants.retention.sweeping import sweep_retention
from tests.billing.cast import at_once
from tests.tenants.people_cast import Company, Person, make_company, make_person


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization that invites."""
    return make_company("acme")


@pytest.fixture
def ada(django_database: object) -> Person:
    """The person who is invited."""
    return make_person("ada")


def stored(company: Company, issued: IssuedInvitation) -> dict[str, object]:
    """The invitation's row, by name."""
    with (
        facade.tenant_scope(company.tenant.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            "SELECT * FROM tenants_invitation WHERE id = %s", [issued.invitation.invitation_id]
        )
        names = [column.name for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))


def expire(issued: IssuedInvitation, days_ago: int = 0) -> None:
    """As if its days had passed."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_invitation SET expires_at = now() - make_interval(days => %s)"
            " WHERE id = %s",
            [days_ago, issued.invitation.invitation_id],
        )


def is_member(company: Company, person: Person) -> bool:
    """Whether the person belongs to the organization."""
    organizations = facade.memberships_of(person.user_id)
    return company.tenant.organization_id in {
        one.organization.organization_id for one in organizations
    }


def test_who_accepts_belongs_in_the_role_of_the_invitation(acme: Company, ada: Person) -> None:
    issued = facade.invite(acme.actor(Role.ADMIN), ada.email.upper(), Role.DEVELOPER)
    offer = facade.invitation_offer(issued.token)

    organization_id = facade.accept_invitation(ada.user_id, issued.token)

    assert (offer.role, offer.organization_id) == (Role.DEVELOPER, organization_id)
    assert ada.at(acme.tenant).permissions == facade.ROLE_PERMISSIONS[Role.DEVELOPER]
    [membership] = facade.memberships_of(ada.user_id)
    assert (membership.organization.slug, membership.role) == (acme.tenant.slug, Role.DEVELOPER)


def test_only_the_hash_of_a_token_is_stored(acme: Company, ada: Person) -> None:
    issued = facade.invite(acme.owner, ada.email, Role.VIEWER)

    row = stored(acme, issued)

    assert all(issued.token not in str(value) for value in row.values())
    assert len(bytes(row["token_hash"])) == 32  # type: ignore[call-overload]  # it is bytes


def test_fifty_who_accept_at_once_bring_one_in(acme: Company, ada: Person) -> None:
    issued = facade.invite(acme.owner, ada.email, Role.VIEWER)

    def accept() -> bool:
        try:
            facade.accept_invitation(ada.user_id, issued.token)
        except InvitationNotFound:
            return False
        return True

    assert sum(at_once([accept] * 50)) == 1
    row = stored(acme, issued)
    assert (row["accepted_by"], row["email"]) == (ada.user_id, None)
    actions = [entry.action for entry in facade.list_audit(acme.owner)]
    assert actions.count("invitation.accepted") == 1


def test_another_persons_invitation_stays_open(acme: Company, ada: Person) -> None:
    mallory = make_person("mallory")
    issued = facade.invite(acme.owner, ada.email, Role.VIEWER)

    with pytest.raises(InvitationForAnother):
        facade.accept_invitation(mallory.user_id, issued.token)

    assert not is_member(acme, mallory)
    facade.accept_invitation(ada.user_id, issued.token)
    assert is_member(acme, ada)


def test_used_withdrawn_expired_and_made_up_tokens_are_refused_alike(
    acme: Company, ada: Person
) -> None:
    used, withdrawn, expired = make_person(), make_person(), make_person()
    tokens = {}
    for person in (used, withdrawn, expired):
        tokens[person] = facade.invite(acme.owner, person.email, Role.VIEWER)
    facade.accept_invitation(used.user_id, tokens[used].token)
    facade.revoke_invitation(acme.owner, tokens[withdrawn].invitation.invitation_id)
    expire(tokens[expired])

    said = set()
    for person, token in [
        *((person, issued.token) for person, issued in tokens.items()),
        (ada, "made-up"),
        (ada, "x" * 10_000),
        (ada, "\u00e9' OR 1=1"),
    ]:
        for ask in (
            lambda: facade.invitation_offer(token),  # noqa: B023
            lambda: facade.accept_invitation(person.user_id, token),  # noqa: B023
        ):
            with pytest.raises(InvitationNotFound) as refusal:
                ask()
            said.add(str(refusal.value))

    assert len(said) == 1
    assert not is_member(acme, withdrawn) and not is_member(acme, expired)


ABOVE = [
    (Role.ADMIN, Role.OWNER),
    (Role.DEVELOPER, Role.VIEWER),
    (Role.BILLING, Role.BILLING),
    (Role.VIEWER, Role.VIEWER),
]


@pytest.mark.parametrize(("actor", "role"), ABOVE)
def test_nobody_invites_above_themselves(
    acme: Company, ada: Person, actor: Role, role: Role
) -> None:
    with pytest.raises(PermissionDenied):
        facade.invite(acme.actor(actor), ada.email, role)
    assert facade.list_invitations(acme.owner) == []


def test_a_member_is_not_invited_again(acme: Company) -> None:
    with pytest.raises(TenantConflict):
        facade.invite(acme.owner, acme.people[Role.VIEWER].email, Role.ADMIN)


def test_open_invitations_are_listed_apart(acme: Company, ada: Person) -> None:
    used = facade.invite(acme.owner, ada.email, Role.VIEWER)
    facade.accept_invitation(ada.user_id, used.token)
    withdrawn = facade.invite(acme.owner, "withdrawn@example.com", Role.VIEWER)
    facade.revoke_invitation(acme.owner, withdrawn.invitation.invitation_id)
    left = facade.invite(acme.owner, "open@example.com", Role.VIEWER).invitation

    assert facade.list_invitations(acme.owner, only_open=True) == [left]
    assert len(facade.list_invitations(acme.owner)) == 3


def test_a_second_invitation_withdraws_the_first(acme: Company, ada: Person) -> None:
    first = facade.invite(acme.owner, ada.email, Role.ADMIN)
    second = facade.invite(acme.owner, ada.email, Role.VIEWER)

    with pytest.raises(InvitationNotFound):
        facade.accept_invitation(ada.user_id, first.token)
    facade.accept_invitation(ada.user_id, second.token)
    assert ada.at(acme.tenant).permissions == facade.ROLE_PERMISSIONS[Role.VIEWER]


def test_a_member_by_other_means_keeps_their_role(acme: Company, ada: Person) -> None:
    issued = facade.invite(acme.owner, ada.email, Role.OWNER)
    facade.add_member(acme.tenant.organization_id, ada.user_id, Role.VIEWER)

    facade.accept_invitation(ada.user_id, issued.token)

    assert ada.at(acme.tenant).permissions == facade.ROLE_PERMISSIONS[Role.VIEWER]


def test_another_organizations_invitation_is_not_here(acme: Company, ada: Person) -> None:
    globex = make_company("globex")
    issued = facade.invite(acme.owner, ada.email, Role.VIEWER)

    with pytest.raises(InvitationNotFound):
        facade.revoke_invitation(globex.owner, issued.invitation.invitation_id)
    with pytest.raises(InvitationNotFound):
        facade.read_invitation(globex.owner, issued.invitation.invitation_id)
    assert facade.invitation_offer(issued.token).role is Role.VIEWER


def test_a_days_invitations_are_counted_withdrawn_ones_too(acme: Company, ada: Person) -> None:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_invitation"
            " (id, organization_id, token_hash, role, expires_at, revoked_at)"
            " SELECT uuidv7(), %s, sha256(uuid_send(uuidv7())), 'viewer', now(), now()"
            " FROM generate_series(1, %s)",
            [acme.tenant.organization_id, INVITATIONS_PER_DAY_MAX],
        )

    with pytest.raises(TenantConflict):
        facade.invite(acme.owner, ada.email, Role.VIEWER)
    globex = make_company("globex")
    assert facade.invite(globex.owner, ada.email, Role.VIEWER).token


def test_an_invitation_is_forgotten_some_months_after_it_expired(acme: Company) -> None:
    expired, forgotten = (
        facade.invite(acme.owner, make_person().email, Role.VIEWER) for _ in range(2)
    )
    expire(expired)
    expire(forgotten, days_ago=91)

    sweep_retention()

    listed = [one.invitation_id for one in facade.list_invitations(acme.owner)]
    assert listed == [expired.invitation.invitation_id]


@pytest.mark.parametrize("email", ["", "ada", "ada@", "a b@example.org", "ada@example.org\nx"])
def test_an_invitation_needs_an_address(acme: Company, email: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        facade.invite(acme.owner, email, Role.VIEWER)
    assert refusal.value.param == "email"
