"""Invoices: what is owed is asked for once, in cents, with nothing lost on the way."""

from datetime import UTC, datetime, timedelta

from django.db import connections

from billing.contracts import PICO, Invoice, InvoiceConflict, InvoiceKind, LineKind, UsageCounts
from billing.facade import (
    close_due,
    invoice,
    invoices,
    reconcile,
    set_credit_limit,
    set_tax,
    settle,
)
from tests.billing.cast import Tenant, make_tenant, used

CENT = PICO // 100
DAY = timedelta(days=1)


def spend(tenant: Tenant, amount_pico: int) -> None:
    """Use tokens that cost this much, at one pico-unit each."""
    [settled] = settle([used(tenant.held(amount_pico, 0), UsageCounts(amount_pico, 0, 0))])
    assert settled.charge_pico == amount_pico


def closed(tenant: Tenant, months: int = 1) -> Invoice:
    """Close the tenant's next period, so many months from now; its document."""
    before = len(invoices(tenant.organization_id))
    close_due(datetime.now(UTC) + months * 33 * DAY)
    documents = invoices(tenant.organization_id)
    assert len(documents) == before + 1
    return invoice(tenant.organization_id, documents[0].invoice_id)


def legs(tenant: Tenant) -> dict[str, int]:
    """The sum of each of the tenant's ledger accounts."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT a.kind, coalesce(sum(l.amount_pico), 0) FROM billing_ledger_account a"
            " LEFT JOIN billing_ledger_leg l ON l.account_id = a.id"
            " WHERE a.organization_id = %s GROUP BY a.kind",
            [tenant.organization_id],
        )
        return {str(kind): int(amount) for kind, amount in cursor.fetchall() if amount}


def postpaid(credit_pico: int = 0) -> Tenant:
    """A tenant who may owe 100."""
    tenant = make_tenant(credit_pico=credit_pico)
    set_credit_limit(tenant.organization_id, 100 * PICO)
    return tenant


def test_what_is_owed_becomes_a_receivable_in_cents(django_database: object) -> None:
    tenant = postpaid()
    set_tax(tenant.organization_id, "VAT", 190_000, 30)
    spend(tenant, 2 * CENT + CENT // 2 + 7)

    document = closed(tenant)

    assert document.kind is InvoiceKind.INVOICE
    assert (document.number, document.net_pico) == (1, 3 * CENT)
    assert document.tax_pico == CENT  # 0.57 of a cent
    assert document.residue_out_pico == -(CENT // 2) + 7
    assert legs(tenant) == {
        "revenue": 2 * CENT + CENT // 2 + 7,
        "receivable": -4 * CENT,
        "rounding": CENT // 2 - 7,
        "tax": CENT,
    }
    assert tenant.balance().posted_pico == 0
    assert reconcile() == []


def test_a_prepaid_tenant_gets_a_statement_that_asks_for_nothing(acme: Tenant) -> None:
    spend(acme, 3 * CENT + 1)

    document = closed(acme)

    assert document.kind is InvoiceKind.STATEMENT
    assert (document.net_pico, document.residue_out_pico, document.due_pico) == (3 * CENT, 1, 0)
    assert [line.kind for line in document.lines] == [LineKind.USAGE, LineKind.GRANT]
    assert "receivable" not in legs(acme)
    assert acme.balance().posted_pico == 5 * PICO - 3 * CENT - 1
    assert reconcile() == []


def test_credit_pays_before_an_invoice_asks(django_database: object) -> None:
    tenant = postpaid(credit_pico=10 * CENT)
    spend(tenant, 12 * CENT + 3)

    document = closed(tenant)

    assert document.kind is InvoiceKind.INVOICE
    assert document.exact_pico == 2 * CENT + 3
    [credit] = [line for line in document.lines if line.kind is LineKind.CREDIT]
    assert credit.exact_pico == -10 * CENT
    assert (document.net_pico, document.residue_out_pico) == (2 * CENT, 3)
    assert reconcile() == []


def test_the_residue_is_carried_until_it_makes_a_cent(django_database: object) -> None:
    tenant = postpaid()
    nets, residues = [], []
    for month in (1, 2, 3):
        spend(tenant, CENT + CENT // 4)
        document = closed(tenant, month)
        nets.append(document.net_pico)
        residues.append(document.residue_out_pico)

    assert nets == [CENT, CENT, 2 * CENT]
    assert residues == [CENT // 4, CENT // 2, -(CENT // 4)]
    assert legs(tenant)["rounding"] == CENT // 4
    assert reconcile() == []
