"""What documents say: their lines, their paper, and who is told."""

from datetime import UTC, datetime, timedelta

from django.db import connections

from billing.contracts import (
    PICO,
    BillingProfile,
    InvoiceKind,
    LineKind,
    UsageCounts,
)
from billing.facade import (
    begin_topup,
    complete_topup,
    forget_addresses,
    grant_credit,
    invoice,
    invoice_pdf,
    reconcile,
    refund_topup,
    save_billing_settings,
    save_profile,
    set_tax,
    settle,
    tend_credit_of,
)
from tenants.facade import operator_of
from tests.billing.bills import CENT, close, closed, month, postpaid, read, spend
from tests.billing.cast import Tenant, used
from tests.billing.till import open_till


def test_the_paper_says_what_the_books_say(django_database: object) -> None:
    tenant = postpaid()
    set_tax(tenant.organization_id, "VAT", 190_000, 14)
    profile = BillingProfile("Łódź Żółw GmbH", "Markt 1\n12345 Berlin", "a@b.c", "DE1", "PO-7")
    save_profile(operator_of(tenant.organization_id), profile)
    spend(tenant, 100 * CENT)
    document = closed(tenant)

    text = read(document)

    for part in ("Invoice 1", "Dam 1", "Markt 1", "Tax id: DE1", "Order: PO-7", "VAT 19.00 %"):
        assert part in text
    assert "1.19" in text
    assert "odz Zo" in text  # letters that the font lacks lose their accents
    again = invoice(tenant.organization_id, document.invoice_id)
    assert invoice_pdf(document, "x") == invoice_pdf(again, "x")


def test_a_deletion_takes_the_address_and_leaves_the_books(django_database: object) -> None:
    tenant = postpaid()
    save_profile(operator_of(tenant.organization_id), BillingProfile(legal_name="Ann Smith"))
    spend(tenant, 3 * CENT)
    document = closed(tenant)
    assert "Ann Smith" in read(document)

    forget_addresses(tenant.organization_id)

    left = invoice(tenant.organization_id, document.invoice_id)
    assert left.recipient is None
    assert "Ann Smith" not in read(left)
    assert left.lines == document.lines
    assert reconcile() == []


def test_a_statement_tells_what_came_and_went(acme: Tenant) -> None:
    with open_till() as till:
        begin_topup(operator_of(acme.organization_id), 20 * PICO, "first")
        reference = f"pay_{till.begun[0].hex}"
        complete_topup(reference, 20 * PICO)
        refund_topup(reference, 3 * PICO, "back")
    grant_credit(
        acme.organization_id, CENT, "ending", expires_at=datetime.now(UTC) + timedelta(hours=1)
    )
    tend_credit_of(acme.organization_id, datetime.now(UTC) + timedelta(hours=2))

    document = close(acme, month())

    moved = {line.kind: line.exact_pico for line in document.lines}
    assert moved == {
        LineKind.TOP_UP: 20 * PICO,
        LineKind.GRANT: 5 * PICO + CENT,
        LineKind.REFUND: -3 * PICO,
        LineKind.EXPIRED: -CENT,
    }
    assert (document.kind, document.total_pico) == (InvoiceKind.STATEMENT, 0)
    assert "Credit in this period" in read(document)


def test_an_invoice_is_told_and_a_statement_is_not(acme: Tenant) -> None:
    tenant = postpaid()
    for one in (tenant, acme):
        spend(one, 3 * CENT)
        close(one, month())

    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT organization_id, data ->> 'total_pico' FROM tenants_outbox_event"
            " WHERE kind = 'invoice.issued' AND organization_id = ANY (%s)",
            [[tenant.organization_id, acme.organization_id]],
        )
        assert cursor.fetchall() == [(tenant.organization_id, str(3 * CENT))]


def test_lines_are_by_model_class_tier_and_price(django_database: object) -> None:
    tenant = postpaid()
    priced = tenant.with_prices(500, 50, 2500)
    settle([used(priced.held(30, 10), UsageCounts(10, 20, 10)) for _ in range(3)])

    document = close(tenant, month())

    told = {
        line.token_class: (line.tokens, line.price_micros_per_mtok, line.exact_pico)
        for line in document.lines
        if line.kind is LineKind.USAGE
    }
    assert told == {
        "input": (30, 500, 15_000),
        "cached_input": (60, 50, 3_000),
        "output": (30, 2500, 75_000),
    }
    assert {line.tier for line in document.lines if line.kind is LineKind.USAGE} == {"interactive"}
    # A fraction of a cent is owed and none is asked for: it is carried.
    assert (document.net_pico, document.residue_out_pico) == (0, 93_000)
    assert reconcile() == []


def test_lines_may_be_grouped_by_project(django_database: object) -> None:
    tenant = postpaid()
    save_billing_settings(operator_of(tenant.organization_id), None, "project")
    spend(tenant, 3 * CENT)

    document = close(tenant, month())

    assert [line.group for line in document.lines] == [str(tenant.project_id)]


def test_what_a_hold_did_not_cover_is_written_off_on_paper_too(django_database: object) -> None:
    tenant = postpaid()
    settle([used(tenant.held(CENT, 0), UsageCounts(3 * CENT, 0, 0))])

    document = close(tenant, month())

    assert [(line.kind, line.exact_pico) for line in document.lines] == [
        (LineKind.USAGE, 3 * CENT),
        (LineKind.WRITTEN_OFF, -2 * CENT),
    ]
    assert document.net_pico == CENT
    assert reconcile() == []
