"""Members: who belongs to an organization, and in which role.

Nobody gives or takes a role above their own, and the database keeps the last owner. A change counts
from the next request on; admin keys and invitations that a member made never outlive the rights
they came from. Called by the management API and the consoles.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import IntegrityError, connections
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    ROWS_MAX,
    Actor,
    KeyKind,
    LastOwner,
    Member,
    MemberOf,
    Organization,
    OrganizationStatus,
    Permission,
    Role,
    Standing,
    TenantObjectNotFound,
)
from tenants.database_errors import broken_constraint
from tenants.keys.lifecycle import revoke_rows
from tenants.models import ApiKey, Membership
from tenants.people.permissions import (
    ROLE_PERMISSIONS,
    operator_of,
    require_at_least,
    roles_given_by,
)
from tenants.people.standing import acting
from tenants.people.withdrawing import lock_invitations, open_invitations, withdraw
from tenants.scope import APP_ALIAS, require_scope, tenant_scope

LAST_OWNER = "tenants_last_owner"
STANDING_AMONG_MAX = 10_000
"""People of one question; a process shows live pages to far fewer."""


def list_members(
    actor: Actor, *, rows_max: int = ROWS_MAX, after: UUID | None = None, ascending: bool = False
) -> list[Member]:
    """Members by user id, the newest users first unless `ascending`."""
    actor.require(Permission.MEMBERS_READ)
    with tenant_scope(actor.organization_id):
        return _members(after, ascending, rows_max)


def read_member(actor: Actor, user_id: UUID) -> Member:
    """One member; raises TenantObjectNotFound."""
    actor.require(Permission.MEMBERS_READ)
    with tenant_scope(actor.organization_id):
        found = _members(wanted=user_id)
    if not found:
        raise TenantObjectNotFound("no such member")
    return found[0]


def is_member(address: str) -> bool:
    """Whether the open scope's organization has a member of this e-mail address."""
    return bool(_members(address=address))


def change_role(actor: Actor, user_id: UUID, role: Role) -> Member:
    """Give a member another role, at once.

    Raises PermissionDenied where either role is above the actor's, LastOwner,
    TenantObjectNotFound.
    """
    try:
        with acting(actor, Permission.MEMBERS_WRITE) as actor:
            require_at_least(actor, ROLE_PERMISSIONS[role])
            row = _membership(actor, user_id)
            before, row.role = row.role, role.value
            row.save(update_fields=["role"])
            _take_back(actor, user_id, ROLE_PERMISSIONS[role])
            record_audit(actor, "role.changed", "user", user_id, {"from": before, "to": role.value})
            return _members(wanted=user_id)[0]
    except IntegrityError as error:
        if broken_constraint(error) == LAST_OWNER:
            raise LastOwner("the organization needs an owner: name another one first") from None
        raise


def remove_member(actor: Actor, user_id: UUID) -> None:
    """End a membership, at once; anybody may end their own.

    Raises PermissionDenied, LastOwner, TenantObjectNotFound.
    """
    needed = () if actor.actor_id == user_id else (Permission.MEMBERS_WRITE,)
    try:
        with acting(actor, *needed) as actor:
            row = _membership(actor, user_id)
            row.delete()
            _take_back(actor, user_id, frozenset())
            record_audit(actor, "member.removed", "user", user_id, {"role": row.role})
    except IntegrityError as error:
        if broken_constraint(error) == LAST_OWNER:
            raise LastOwner("the organization needs an owner: name another one first") from None
        raise


def add_member(
    organization_id: UUID, user_id: UUID, role: Role, using: str = "housekeeper"
) -> None:
    """Make a user a member, by the operator's hand; a member keeps the role they have."""
    with tenant_scope(organization_id, using):
        _, added = Membership.objects.using(using).get_or_create(
            organization_id=organization_id,
            user_id=user_id,
            defaults={"id": uuid7(), "role": role.value},
        )
        if added:
            record_audit(
                operator_of(organization_id),
                "member.added",
                "user",
                user_id,
                {"role": role.value},
                using,
            )


def memberships_of(user_id: UUID) -> list[MemberOf]:
    """The organizations of a person who has signed in, by slug; closed ones are left out."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT id, slug, display_name, currency, role, status FROM tenants_memberships_of(%s)",
            [user_id],
        )
        return [
            MemberOf(Organization(*organization), Role(role), OrganizationStatus(status))
            for *organization, role, status in cursor.fetchall()
        ]


def standing_among(places: Collection[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], Standing]:
    """Where people stand in organizations, by (user, organization); no member has no entry."""
    assert len(places) <= STANDING_AMONG_MAX, "too many people in one question"
    if not places:
        return {}
    people, organizations = zip(*places, strict=True)
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM tenants_standing_among(%s::uuid[], %s::uuid[])",
            [list(people), list(organizations)],
        )
        return {
            (user_id, organization_id): Standing(ROLE_PERMISSIONS[Role(role)], is_demanded)
            for user_id, organization_id, role, is_demanded in cursor.fetchall()
        }


def strangers_among(addresses: Sequence[str], using: str = APP_ALIAS) -> list[str]:
    """Those of the addresses that are no member's of the organization in scope."""
    require_scope(using)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT a FROM unnest(%s::text[]) a"
            " WHERE NOT EXISTS (SELECT FROM tenants_members(NULL, true, 1, NULL, a))",
            [list(addresses)],
        )
        return [address for (address,) in cursor.fetchall()]


def _membership(actor: Actor, user_id: UUID) -> Membership:
    """The row, locked; raises where the actor may not touch it."""
    row = Membership.objects.select_for_update(no_key=True).filter(user_id=user_id).first()
    if row is None:
        raise TenantObjectNotFound("no such member")
    if actor.actor_id != user_id:
        require_at_least(actor, ROLE_PERMISSIONS[Role(row.role)])
    return row


def _take_back(actor: Actor, user_id: UUID, left: frozenset[Permission]) -> None:
    """End what a member gave that goes beyond what the member may still give.

    That is admin keys, their invitations, and the member's own.
    """
    offered = open_invitations().filter(invited_by=user_id)
    beyond = lock_invitations(offered.exclude(role__in=roles_given_by(left)))
    keys = ApiKey.objects.filter(
        kind=KeyKind.ADMIN.value, created_by=user_id, revoked_at=None
    ).exclude(permissions__contained_by=[permission.value for permission in left])
    revoke_rows(actor, keys, APP_ALIAS)
    withdraw(actor, beyond)


def _members(
    after: UUID | None = None,
    ascending: bool = False,
    rows_max: int = 1,
    wanted: UUID | None = None,
    address: str | None = None,
) -> list[Member]:
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT user_id, email, display_name, role, added_at"
            " FROM tenants_members(%s, %s, %s, %s, %s)",
            [after, ascending, rows_max, wanted, address],
        )
        return [
            Member(user_id, email, display_name, Role(role), added_at)
            for user_id, email, display_name, role, added_at in cursor.fetchall()
        ]
