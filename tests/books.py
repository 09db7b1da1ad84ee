"""The stored state of money, read as the housekeeper: what a test asserts beside a response."""

from typing import Any
from uuid import UUID

import billing.facade
from billing.contracts import Balance, Quote, ServiceTier, UsageCounts
from tests.house import LiveHouse, Tenant


def rows(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """All rows of one statement, past every policy."""
    from django.db import connections

    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def balance(tenant: Tenant) -> Balance:
    """The tenant's account."""
    return billing.facade.balance(tenant.organization_id)


def events(tenant: Tenant) -> list[dict[str, Any]]:
    """The tenant's usage events, oldest first."""
    names = [
        "request_id",
        "uncached_input_tokens",
        "cached_input_tokens",
        "output_tokens",
        "charge_pico",
        "finish_reason",
        "source",
        "tier",
    ]
    found = rows(
        f"SELECT {', '.join(names)} FROM billing_usage_event"
        " WHERE organization_id = %s ORDER BY occurred_at",
        tenant.organization_id,
    )
    return [dict(zip(names, row, strict=True)) for row in found]


def charged_pico(tenant: Tenant) -> int:
    """The sum of all charges of a tenant."""
    return sum(int(event["charge_pico"]) for event in events(tenant))


def holds(tenant: Tenant, state: str = "open") -> list[UUID]:
    """The tenant's holds in one state."""
    found = rows(
        "SELECT id FROM billing_hold WHERE organization_id = %s AND state = %s",
        tenant.organization_id,
        state,
    )
    return [row[0] for row in found]


def daily_tokens(tenant: Tenant) -> tuple[int, int]:
    """Used and held tokens of the tenant's daily quota."""
    ((used, held),) = rows(
        "SELECT coalesce(sum(used_amount), 0), coalesce(sum(held_amount), 0)"
        " FROM billing_quota_counter WHERE organization_id = %s",
        tenant.organization_id,
    )
    return int(used), int(held)


def quote(house: LiveHouse, tenant: Tenant) -> Quote:
    """The prices in force for the tenant."""
    return billing.facade.quote(tenant.organization_id, None, house.model, ServiceTier.INTERACTIVE)


def counts(event: dict[str, Any]) -> UsageCounts:
    """The price classes of one event."""
    return UsageCounts(
        event["uncached_input_tokens"], event["cached_input_tokens"], event["output_tokens"]
    )


def assert_in_order() -> None:
    """Every invariant of the ledger holds, over all tenants."""
    assert billing.facade.reconcile() == []
