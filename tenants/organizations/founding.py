"""Founding: a person makes an organization of their own and owns it.

The SQL function counts what the founder owns under a lock, so that a crowd of requests founds no
more than the limit. Called by the management API.
"""

from django.db import IntegrityError, connections

from tenants.contracts import Actor, ActorKind, LimitReached, Organization, TenantConflict
from tenants.keys.settings import checked_display_name
from tenants.organizations.accounts import (
    CONCURRENT_REQUESTS_MAX,
    REQUESTS_PER_MINUTE_MAX,
    TOKENS_PER_MINUTE_MAX,
)
from tenants.scope import APP_ALIAS


def found_organization(
    founder: Actor, slug: str, display_name: str, currency: str, owned_max: int
) -> Organization:
    """The organization `founder.organization_id`, fresh, owned by the founding user.

    Raises TenantConflict when the user owns `owned_max` already or the slug is taken, and
    InvalidValue for a display name that is none.
    """
    assert founder.kind is ActorKind.USER
    display_name = checked_display_name(display_name)
    try:
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute(
                "SELECT tenants_found_organization(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    founder.organization_id,
                    founder.actor_id,
                    slug,
                    display_name,
                    currency,
                    REQUESTS_PER_MINUTE_MAX,
                    TOKENS_PER_MINUTE_MAX,
                    CONCURRENT_REQUESTS_MAX,
                    owned_max,
                    founder.ip,
                    founder.request_id,
                ],
            )
            [founded] = cursor.fetchone()
    except IntegrityError as error:
        raise TenantConflict(f"the name '{slug}' is taken") from error
    if not founded:
        raise LimitReached(
            "organizations_per_user", f"nobody owns more than {owned_max} organizations"
        )
    return Organization(founder.organization_id, slug, display_name, currency)
