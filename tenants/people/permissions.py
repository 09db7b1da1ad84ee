"""Who may do what: the one table of roles, and how somebody becomes an actor.

Never caches: a role that changed or a membership that ended counts from the next call on. Called
by every door that knows a user or an admin key, through the facade.
"""

from collections.abc import Mapping
from uuid import UUID

from tenants.contracts import (
    Actor,
    ActorKind,
    KeyIdentity,
    OrganizationNotFound,
    OrganizationStatus,
    Permission,
    PermissionDenied,
    Role,
    SecondFactorMissing,
)
from tenants.models import Membership
from tenants.scope import tenant_scope

_VIEWER = frozenset(
    {
        Permission.ORGANIZATION_READ,
        Permission.PROJECTS_READ,
        Permission.KEYS_READ,
        Permission.LIMITS_READ,
        Permission.CATALOG_READ,
        Permission.USAGE_READ,
        Permission.JOBS_READ,
    }
)
_EVERYTHING = frozenset(Permission)

ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.OWNER: _EVERYTHING,
    Role.ADMIN: _EVERYTHING - {Permission.ORGANIZATION_DELETE},
    Role.DEVELOPER: _VIEWER
    | {
        Permission.MEMBERS_READ,
        Permission.KEYS_WRITE,
        Permission.CATALOG_WRITE,
        Permission.REQUESTS_READ,
        Permission.WEBHOOKS_READ,
        Permission.JOBS_WRITE,
        Permission.PLAYGROUND,
    },
    Role.BILLING: _VIEWER
    | {Permission.MEMBERS_READ, Permission.BILLING_READ, Permission.BILLING_WRITE},
    Role.VIEWER: _VIEWER,
}
"""A role stands above another when its permissions include all of the other's."""


def require_at_least(actor: Actor, permissions: frozenset[Permission]) -> None:
    """Nobody gives, or takes, more than they have: raises PermissionDenied."""
    for permission in sorted(permissions - actor.permissions):
        raise PermissionDenied(permission)


def roles_given_by(permissions: frozenset[Permission]) -> frozenset[Role]:
    """The roles that somebody who may do this may give to others."""
    if Permission.MEMBERS_WRITE not in permissions:
        return frozenset()
    return frozenset(role for role, allowed in ROLE_PERMISSIONS.items() if allowed <= permissions)


def actor_for_user(
    user_id: UUID,
    organization_id: UUID,
    ip: str = "",
    request_id: UUID | None = None,
    *,
    has_second_factor: bool | None,
) -> Actor:
    """A member as an actor; raises OrganizationNotFound for anybody else.

    Raises SecondFactorMissing for a member without one where the organization demands it;
    `has_second_factor` None is for what even such a member may do.
    """
    with tenant_scope(organization_id):
        found = (
            Membership.objects.filter(user_id=user_id)
            .exclude(organization__status=OrganizationStatus.CLOSED)
            .values_list("role", "organization__second_factor_required")
            .first()
        )
    if found is None:
        raise OrganizationNotFound("no such organization")
    role, is_demanded = found
    if is_demanded and has_second_factor is False:
        raise SecondFactorMissing("This organization demands a second factor of its members.")
    return Actor(
        ActorKind.USER,
        user_id,
        organization_id,
        ROLE_PERMISSIONS[Role(role)],
        ip,
        request_id,
        has_second_factor is True,
    )


def actor_for_key(identity: KeyIdentity, ip: str = "", request_id: UUID | None = None) -> Actor:
    """A key as an actor; a project's key may do nothing here."""
    return Actor(
        ActorKind.API_KEY,
        identity.key_id,
        identity.organization_id,
        identity.permissions,
        ip,
        request_id,
    )


def operator_of(
    organization_id: UUID,
    operator_id: UUID | None = None,
    ip: str = "",
    request_id: UUID | None = None,
) -> Actor:
    """The operator, who may do everything in any organization; by the shell nobody by name."""
    return Actor(ActorKind.OPERATOR, operator_id, organization_id, _EVERYTHING, ip, request_id)
