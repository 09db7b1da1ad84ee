"""Books of credit and of documents that were tampered with are found out."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.db import connections

from billing.contracts import PICO, UsageCounts
from billing.facade import (
    begin_topup,
    credit_grants,
    reconcile,
    record_payment,
    set_credit_limit,
    settle,
)
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from tenants.facade import operator_of, tenant_scope
from tests.billing.cast import Tenant, make_tenant, used
from tests.billing.till import open_till

CENT = PICO // 100
HISTORY = "billing_invoice_is_history"


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Somebody with a burned grant, a top-up that waits, and an invoice in part paid."""
    tenant = make_tenant("acme", credit_pico=CENT)
    organization_id = tenant.organization_id
    set_credit_limit(organization_id, PICO)
    settle([used(tenant.held(4 * CENT, 0), UsageCounts(4 * CENT, 0, 0))])
    credit_grants(organization_id)
    with open_till():
        begin_topup(operator_of(organization_id), 20 * PICO, "first")
    month = month_of(datetime.now(UTC), ZoneInfo("UTC"))
    document = close_period(organization_id, month, "UTC", month.closes_at())
    record_payment(organization_id, document.invoice_id, CENT, "transfer")
    assert reconcile() == []
    return tenant


def as_owner(tenant: Tenant, statement: str) -> None:
    """What only the tables' owner can do, to one tenant's rows."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def tampered(tenant: Tenant, table: str, change: str, undo: str) -> Iterator[None]:
    """Change the tenant's rows behind the backs of triggers, and back again."""
    is_history = table.startswith("billing_invoice")

    def update(assignments: str) -> None:
        if is_history:
            as_owner(tenant, f"ALTER TABLE {table} DISABLE TRIGGER {HISTORY}")
        as_owner(tenant, f"UPDATE {table} SET {assignments}")
        if is_history:
            as_owner(tenant, f"ALTER TABLE {table} ENABLE TRIGGER {HISTORY}")

    update(change)
    try:
        yield
    finally:
        update(undo)


def shifted(column: str, by: int = 1) -> tuple[str, str]:
    """Add so much to a column; and take it off."""
    return f"{column} = {column} + {by}", f"{column} = {column} - {by}"


def both(*shifts: tuple[str, str]) -> tuple[str, str]:
    """Several columns at once."""
    changes, undoings = zip(*shifts, strict=True)
    return ", ".join(changes), ", ".join(undoings)


@pytest.mark.parametrize(
    ("table", "change", "finding"),
    [
        ("billing_credit_grant", shifted("remaining_pico"), "what is left of it"),
        ("billing_credit_grant", shifted("amount_pico"), "gives something else"),
        ("billing_grant_burn", shifted("amount_pico"), "grants and invoices have paid"),
        ("billing_account", shifted("funded_pico"), "entries other than usage"),
        ("billing_account", shifted("burned_pico"), "less what is owed"),
        ("billing_account", shifted("leaving_pico"), "what leaves an account"),
        (
            "billing_top_up",
            ("refunded_pico = amount_pico", "refunded_pico = 0"),
            "its grant do not agree",
        ),
        ("billing_invoice_line", shifted("exact_pico"), "sum of its lines"),
        ("billing_invoice", shifted("number"), "with a gap"),
        ("billing_invoice", shifted("usage_pico"), "in no document"),
        (
            "billing_invoice",
            both(shifted("exact_pico"), shifted("residue_out_pico")),
            "rounding account",
        ),
        (
            "billing_invoice",
            both(shifted("residue_in_pico"), shifted("residue_out_pico")),
            "not carried",
        ),
        (
            "billing_invoice",
            both(shifted("tax_pico", CENT), shifted("total_pico", CENT)),
            "asks something else",
        ),
        ("billing_invoice_payment", shifted("amount_pico"), "cash is not"),
        ("billing_invoice_payment", shifted("amount_pico"), "receivables"),
    ],
)
def test_reconcile_finds_money_that_was_tampered_with(
    acme: Tenant, table: str, change: tuple[str, str], finding: str
) -> None:
    with tampered(acme, table, *change):
        findings = reconcile()

    assert any(finding in line for line in findings), findings
    assert reconcile() == []
