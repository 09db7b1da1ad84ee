"""Accounts and usage of all tenants, for the operator's pages, whichever of the staff asks.

Runs as role `app`: the database's own functions ask whether the person is of the staff, and read
past the policies only then. Never a sum that the tenant's own reports would not give.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import connections

from billing.contracts import ServiceTier, TenantAccount, TenantUsage
from billing.usage.overview import spans_at

APP_ALIAS = "default"
ROWS_MAX = 2_000
"""Of one read of usage: a tenant has as many as models and tiers that it used."""


def tenant_accounts(
    operator_id: UUID, time_zones: Mapping[UUID, str], now: datetime
) -> dict[UUID, TenantAccount]:
    """The accounts of these organizations, with what each was charged since its own month began.

    `time_zones` says where each one's months begin. Raises ProgrammingError for somebody who is
    no operator.
    """
    month_starts = {
        organization_id: spans_at(now, time_zone).month[0]
        for organization_id, time_zone in time_zones.items()
    }
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM billing_operator_accounts(%s, %s::uuid[], %s::timestamptz[])",
            [operator_id, list(month_starts), list(month_starts.values())],
        )
        return {
            organization_id: TenantAccount(currency, *(int(amount) for amount in amounts))
            for organization_id, currency, *amounts in cursor.fetchall()
        }


def usage_of_all(operator_id: UUID, start_at: datetime, end_at: datetime) -> list[TenantUsage]:
    """Usage by tenant, model and tier of whole hours, the highest charge first, to ROWS_MAX.

    Raises ProgrammingError for somebody who is no operator.
    """
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM billing_operator_usage(%s, %s, %s, %s)",
            [operator_id, start_at, end_at, ROWS_MAX],
        )
        return [
            TenantUsage(organization_id, model, ServiceTier(tier), currency, *map(int, numbers))
            for organization_id, model, tier, currency, *numbers in cursor.fetchall()
        ]
