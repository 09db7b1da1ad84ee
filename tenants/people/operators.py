"""What the operator's pages see of all tenants, whichever of the staff asks.

Runs as role `app`: the database's own function asks whether the person is of the staff and has a
second factor, and reads past the policies only then. Changes nothing.
"""

from collections.abc import Collection
from uuid import UUID

from django.db import connections

from tenants.contracts import MinuteLimits, OrganizationStatus, TenantSummary
from tenants.scope import APP_ALIAS

ROWS_MAX = 51
"""A page, and one more that tells whether there is more."""


def all_tenants(
    operator_id: UUID, wanted: str = "", after: str = "", rows_max: int = ROWS_MAX
) -> list[TenantSummary]:
    """Tenants by slug from behind the one of slug `after`; those whose slug or name has `wanted`.

    Raises ProgrammingError for somebody who is no operator.
    """
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM tenants_operator_tenants(%s, %s, %s, %s)",
            [operator_id, wanted, after, min(rows_max, ROWS_MAX)],
        )
        return [
            TenantSummary(
                organization_id=organization_id,
                slug=slug,
                display_name=display_name,
                currency=currency,
                status=OrganizationStatus(status),
                time_zone=time_zone,
                created_at=created_at,
                members=members,
                limits=MinuteLimits(*limits),
            )
            for (
                organization_id,
                slug,
                display_name,
                currency,
                status,
                time_zone,
                created_at,
                members,
                *limits,
            ) in cursor.fetchall()
        ]


def tenant_slugs(operator_id: UUID, organization_ids: Collection[UUID]) -> dict[UUID, str]:
    """What these are called. Raises ProgrammingError for somebody who is no operator."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM tenants_operator_slugs(%s, %s::uuid[])",
            [operator_id, list(organization_ids)],
        )
        return dict(cursor.fetchall())
