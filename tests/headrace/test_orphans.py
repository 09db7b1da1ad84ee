"""Finishes that nobody waits for: each is settled, whatever the books of another say."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from billing.facade import reconcile, set_daily_tokens, void
from headrace.gateway.settling.settle import settle_orphans
from inference.contracts import Finish, FinishReason, TokenCounts
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, make_tenant

COUNTS = TokenCounts(prompt=60, cached=0, completion=40)


@pytest.fixture
def acme(django_database: object) -> Tenant:
    tenant = make_tenant()
    set_daily_tokens(tenant.organization_id, 1_000)
    return tenant


@contextmanager
def spoiled(tenant: Tenant) -> Iterator[None]:
    """For a while the tenant's counter holds a request less than it should."""

    def shift(tokens: int) -> None:
        with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
            cursor.execute(
                "UPDATE billing_quota_counter SET held_amount = held_amount + %s"
                " WHERE organization_id = %s",
                [tokens, tenant.organization_id],
            )
            assert cursor.rowcount == 1

    shift(-100)
    yield
    shift(100)


@pytest.mark.parametrize(
    ("reason", "state"), [(FinishReason.STOP, "posted"), (FinishReason.REFUSED, "voided")]
)
def test_an_orphan_that_cannot_be_closed_stops_no_other(
    acme: Tenant, reason: FinishReason, state: str
) -> None:
    globex = make_tenant("globex")
    stuck, other = acme.held(), globex.held()
    finishes = [
        Finish(request.request_id.hex, reason, COUNTS, COUNTS) for request in (stuck, other)
    ]

    with spoiled(acme):
        asyncio.run(settle_orphans(finishes, "served"))

    assert acme.receipt(stuck).state == "open"
    assert globex.receipt(other).state == state
    void([stuck.request_id])
    assert reconcile() == []
