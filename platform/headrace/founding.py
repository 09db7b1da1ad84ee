"""A new organization with its account, made by somebody who has signed in.

One transaction: there is no organization without an account. Called by the REST view and the
console.
"""

from uuid import UUID

from django.conf import settings
from django.utils.text import slugify
from uuid_utils.compat import uuid7

import billing.facade
import tenants.facade
from tenants.contracts import Actor, ActorKind, MemberOf

SLUG_CHARS_MAX = 63
CURRENCIES = ("USD", "EUR")


def found(
    founder_id: UUID,
    display_name: str,
    currency: str,
    ip: str,
    request_id: UUID | None,
    slug: str | None = None,
) -> MemberOf:
    """The founder's membership; raises TenantConflict and InvalidValue as `tenants` does."""
    organization_id = uuid7()
    founder = Actor(ActorKind.USER, founder_id, organization_id, frozenset(), ip, request_id)
    with tenants.facade.tenant_scope(organization_id):
        tenants.facade.found_organization(
            founder,
            slug or _slug_of(display_name, organization_id),
            display_name,
            currency,
            settings.ORGANIZATIONS_PER_USER_MAX,
        )
        billing.facade.open_own_account()
    mine = tenants.facade.memberships_of(founder_id)
    [made] = [one for one in mine if one.organization.organization_id == organization_id]
    return made


def _slug_of(display_name: str, organization_id: UUID) -> str:
    readable = slugify(display_name)[: SLUG_CHARS_MAX - 13].strip("-") or "organization"
    return f"{readable}-{organization_id.hex[-12:]}"
