"""Founding: a person makes an organization of their own and owns it.

Runs as role `app`, in the scope of the organization that is about to be; the founder is counted
under a lock, so that a crowd of requests founds no more than the limit. Called by the management
API.
"""

from uuid import UUID

from django.db import IntegrityError, connections

from tenants.accounts import (
    CONCURRENT_REQUESTS_MAX,
    REQUESTS_PER_MINUTE_MAX,
    TOKENS_PER_MINUTE_MAX,
)
from tenants.audit import record_audit
from tenants.contracts import Actor, ActorKind, Organization, Role, TenantConflict
from tenants.members import memberships_of
from tenants.models import Membership, OrganizationRow
from tenants.scope import APP_ALIAS, tenant_scope


def found_organization(
    founder: Actor, slug: str, display_name: str, currency: str, owned_max: int
) -> Organization:
    """The organization `founder.organization_id`, fresh, with the founding user as its owner.

    Raises TenantConflict when the user owns `owned_max` already or the slug is taken.
    """
    assert founder.kind is ActorKind.USER and founder.actor_id is not None
    organization_id = founder.organization_id
    with tenant_scope(organization_id):
        _lock(founder.actor_id)
        owned = [one for one in memberships_of(founder.actor_id) if one.role is Role.OWNER]
        if len(owned) >= owned_max:
            raise TenantConflict(f"you own {len(owned)} organizations already, the most there are")
        try:
            OrganizationRow.objects.create(
                id=organization_id,
                slug=slug,
                display_name=display_name,
                currency=currency,
                requests_per_minute_max=REQUESTS_PER_MINUTE_MAX,
                tokens_per_minute_max=TOKENS_PER_MINUTE_MAX,
                concurrent_requests_max=CONCURRENT_REQUESTS_MAX,
            )
        except IntegrityError as error:
            raise TenantConflict(f"the name '{slug}' is taken") from error
        Membership.objects.create(
            organization_id=organization_id, user_id=founder.actor_id, role=Role.OWNER.value
        )
        record_audit(
            founder, "organization.created", "organization", organization_id, {"slug": slug}
        )
    return Organization(organization_id, slug, display_name, currency)


def _lock(user_id: UUID) -> None:
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('founding ' || %s, 0))", [str(user_id)]
        )
