"""What an actor may do at this very moment, held still until the transaction ends.

An actor was read in an earlier transaction, and a right that was taken meanwhile gives nothing any
more. Whoever gives or takes rights does so in here and holds the organization's row, so of two who
come at once the second sees what the first did. Called by all that makes or widens a right.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from django.db.models.functions import Now

from tenants.contracts import (
    Actor,
    ActorKind,
    KeyRejected,
    OrganizationNotFound,
    OrganizationStatus,
    Permission,
    Role,
)
from tenants.keys.settings import allowed_from
from tenants.models import ApiKey, Membership, OrganizationRow
from tenants.people.permissions import ROLE_PERMISSIONS
from tenants.scope import APP_ALIAS, tenant_scope


@contextmanager
def acting(actor: Actor, *permissions: Permission, using: str = APP_ALIAS) -> Iterator[Actor]:
    """A scope of the actor's organization, and the actor as they stand in it.

    Raises OrganizationNotFound for somebody who is no member any more, KeyRejected for a key that
    has ended, PermissionDenied without one of `permissions`.
    """
    with tenant_scope(actor.organization_id, using):
        # Before every other lock, by everybody: nobody waits here for somebody who waits for them.
        organization = OrganizationRow.objects.using(using).select_for_update(no_key=True)
        status = (
            organization.filter(id=actor.organization_id).values_list("status", flat=True).first()
        )
        standing = _standing(actor, using)
        if standing is not actor and status == OrganizationStatus.CLOSED:
            raise OrganizationNotFound("no such organization")
        for permission in permissions:
            standing.require(permission)
        yield standing


def _standing(actor: Actor, using: str) -> Actor:
    if actor.kind not in (ActorKind.USER, ActorKind.API_KEY):
        return actor
    assert actor.actor_id is not None
    if actor.kind is ActorKind.USER:
        memberships = Membership.objects.using(using).filter(
            organization_id=actor.organization_id, user_id=actor.actor_id
        )
        role = memberships.values_list("role", flat=True).first()
        if role is None:
            raise OrganizationNotFound("no such organization")
        return replace(actor, permissions=actor.permissions & ROLE_PERMISSIONS[Role(role)])
    key = (
        ApiKey.objects.using(using)
        .filter(organization_id=actor.organization_id, id=actor.actor_id, revoked_at=None)
        .exclude(expires_at__lte=Now())
        .exclude(revoke_at__lte=Now())
        .first()
    )
    if key is None:
        raise KeyRejected("the key does not work any more")
    return replace(actor, permissions=actor.permissions & allowed_from(key.permissions))
