"""Organizations and projects: making, finding and archiving them.

Never touches keys or money. Called by the seed, with the housekeeper's alias, and by the demo.
"""

from uuid import UUID

from django.db import connections
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.contracts import Organization
from tenants.models import OrganizationRow, Project
from tenants.scope import APP_ALIAS, tenant_scope

REQUESTS_PER_MINUTE_MAX = 600
TOKENS_PER_MINUTE_MAX = 1_000_000
CONCURRENT_REQUESTS_MAX = 64


def create_organization(
    slug: str,
    display_name: str,
    currency: str = "USD",
    *,
    requests_per_minute_max: int = REQUESTS_PER_MINUTE_MAX,
    tokens_per_minute_max: int = TOKENS_PER_MINUTE_MAX,
    concurrent_requests_max: int = CONCURRENT_REQUESTS_MAX,
    using: str = "housekeeper",
) -> Organization:
    """A new tenant, without projects. Raises IntegrityError when the slug is taken."""
    organization_id = uuid7()
    with tenant_scope(organization_id, using):
        OrganizationRow.objects.using(using).create(
            id=organization_id,
            slug=slug,
            display_name=display_name,
            currency=currency,
            requests_per_minute_max=requests_per_minute_max,
            tokens_per_minute_max=tokens_per_minute_max,
            concurrent_requests_max=concurrent_requests_max,
        )
    return Organization(organization_id, slug, display_name, currency)


def organization_by_slug(slug: str, using: str = APP_ALIAS) -> Organization | None:
    """The tenant of this slug, whoever asks: processes resolve a name before they open a scope."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT id, slug, display_name, currency FROM tenants_organization_by_slug(%s)", [slug]
        )
        row = cursor.fetchone()
    return None if row is None else Organization(*row)


def create_project(organization_id: UUID, name: str, using: str = APP_ALIAS) -> UUID:
    """A new project of the organization; returns its id."""
    project_id: UUID = uuid7()
    with tenant_scope(organization_id, using):
        Project.objects.using(using).create(
            id=project_id, organization_id=organization_id, name=name
        )
    return project_id


def archive_project(organization_id: UUID, project_id: UUID, using: str = APP_ALIAS) -> None:
    """Its keys stop working at once; archiving again changes nothing."""
    with tenant_scope(organization_id, using):
        Project.objects.using(using).filter(
            organization_id=organization_id, id=project_id, archived_at=None
        ).update(archived_at=Now())
