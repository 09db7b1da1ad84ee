"""The operator's commands of credit and invoices."""

import io
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command

from billing.contracts import PICO, UsageCounts
from billing.facade import credit_grants, invoice, invoices, reconcile, settle
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from tests.billing.cast import Tenant, make_tenant, used
from tests.books import rows

CENT = PICO // 100
ENDS = "2999-01-01"


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """A tenant without credit."""
    return make_tenant("acme", credit_pico=0)


def slug_of(tenant: Tenant) -> str:
    """What commands call the tenant."""
    [(slug,)] = rows("SELECT slug FROM tenants_organization WHERE id = %s", tenant.organization_id)
    return str(slug)


def run(command: str, tenant: Tenant, *arguments: str) -> str:
    """What the command says."""
    output = io.StringIO()
    call_command(command, slug_of(tenant), *arguments, stdout=output)
    return output.getvalue().strip().replace(slug_of(tenant), "acme")


def audited(tenant: Tenant) -> list[str]:
    """What the tenant's audit log says of money, in order."""
    found = rows(
        "SELECT action FROM tenants_audit_log WHERE organization_id = %s"
        " AND split_part(action, '.', 1) IN ('billing', 'credit', 'invoice') ORDER BY sequence",
        tenant.organization_id,
    )
    return [str(action) for (action,) in found]


def billed(tenant: Tenant, cents: int) -> None:
    """An invoice of so many cents of usage, as of when this month is closed."""
    dear = tenant.with_prices(CENT, CENT, CENT)
    settle([used(dear.held(cents, 0), UsageCounts(cents, 0, 0))])
    period = month_of(datetime.now(UTC), ZoneInfo("UTC"))
    close_period(tenant.organization_id, period, "UTC", period.closes_at())


def test_an_account_goes_from_limit_to_invoice_to_paid(acme: Tenant) -> None:
    assert run("set_credit_limit", acme, "50") == "acme may owe 50.00"
    assert run("set_tax", acme, "VAT", "19") == "acme pays VAT of 190000 millionths within 14 days"
    billed(acme, 1000)

    told = [
        run("credit_note", acme, "1", "2", "--reason", "outage", "--reference", "n1"),
        run("credit_note", acme, "1", "2", "--reason", "outage", "--reference", "n1"),
        run("record_payment", acme, "1", "9", "--reference", "bank 1"),
        run("record_payment", acme, "1", "0.52", "--reference", "bank 2"),
    ]

    assert told == [
        "credit note 2 of -2.38 USD",
        "credit note 2 of -2.38 USD",
        "0.52 USD are due of invoice 1",
        "0.00 USD are due of invoice 1",
    ]
    assert audited(acme) == [
        "credit.limit_changed",
        "billing.tax_changed",
        "invoice.issued",
        "invoice.issued",
        "invoice.paid",
        "invoice.paid",
    ]
    assert reconcile() == []


def test_money_that_came_by_bank_is_paid_credit_that_may_end(acme: Tenant) -> None:
    told = run(
        "grant_credit", acme, "5", "--reference", "bank", "--paid", "--expires", "2999-01-01"
    )

    [grant] = credit_grants(acme.organization_id)
    assert told == "acme has 5.00 USD"
    assert (grant.category, grant.expires_at) == ("paid", datetime(2999, 1, 1, tzinfo=UTC))
    assert reconcile() == []


@pytest.mark.parametrize(
    ("command", "arguments", "complaint"),
    [
        ("set_credit_limit", ("-1",), "not between"),
        ("set_credit_limit", ("4",), "owed or held"),
        ("set_tax", ("VAT", "101"), "no such tax rate"),
        ("set_tax", ("VAT", "19.00001"), "four decimals"),
        ("record_payment", ("1", "1", "--back", "--reference", "x"), "not due"),
        ("record_payment", ("7", "1", "--reference", "x"), "no document 7"),
        ("credit_note", ("1", "999", "--reason", "x", "--reference", "x"), "left of the invoice"),
        ("credit_note", ("1", "0.001", "--reason", "x", "--reference", "x"), "whole cents"),
        ("grant_credit", ("5", "--reference", "x", "--expires", "2001-01-01"), "in the past"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    acme: Tenant, command: str, arguments: tuple[str, ...], complaint: str
) -> None:
    run("set_credit_limit", acme, "50")
    billed(acme, 1000)
    dear = acme.with_prices(CENT, CENT, CENT)
    settle([used(dear.held(500, 0), UsageCounts(500, 0, 0))])
    before = (acme.balance(), invoices(acme.organization_id), audited(acme))

    with pytest.raises(CommandError, match=complaint):
        run(command, acme, *arguments)

    assert (acme.balance(), invoices(acme.organization_id), audited(acme)) == before
    first = invoices(acme.organization_id)[-1]
    assert invoice(acme.organization_id, first.invoice_id).due_pico == 10 * PICO
