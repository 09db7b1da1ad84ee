"""What becomes of an invoice: paid once, taken back in part, and never changed."""

from uuid import UUID

import pytest
from django.db import IntegrityError, connections

from billing.contracts import (
    CreditLimitTooLow,
    InvoiceConflict,
    InvoiceNotFound,
)
from billing.facade import (
    credit_note,
    invoice,
    reconcile,
    record_payment,
    set_credit_limit,
    set_tax,
)
from tenants.facade import tenant_scope
from tests.billing.bills import CENT, closed, legs, postpaid, spend
from tests.billing.cast import Tenant, at_once


def test_numbers_have_no_gap_over_months_and_notes(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    first = closed(tenant)
    note = credit_note(tenant.organization_id, first.invoice_id, CENT, "sorry", "note-1")
    second = closed(tenant, 2)

    assert [one.number for one in (first, note, second)] == [1, 2, 3]


def test_an_invoice_is_paid_once(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    document = closed(tenant)

    def pay(amount_pico: int, reference: str) -> bool:
        return record_payment(tenant.organization_id, document.invoice_id, amount_pico, reference)

    told = at_once([lambda: pay(2 * CENT, "transfer 1") for _ in range(20)])
    with pytest.raises(InvoiceConflict):
        pay(CENT, "transfer 1")
    pay(CENT, "transfer 3")
    with pytest.raises(InvoiceConflict):
        pay(CENT, "transfer 4")

    assert told.count(True) == 1
    assert invoice(tenant.organization_id, document.invoice_id).due_pico == 0
    assert legs(tenant) == {"revenue": 3 * CENT, "cash": -3 * CENT}
    assert reconcile() == []


def test_what_is_paid_beyond_an_invoice_becomes_credit(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    document = closed(tenant)

    def pay(amount_pico: int) -> bool:
        return record_payment(tenant.organization_id, document.invoice_id, amount_pico, "transfer")

    assert at_once([lambda: pay(5 * CENT) for _ in range(10)]).count(True) == 1
    with pytest.raises(InvoiceConflict):
        pay(3 * CENT)

    assert invoice(tenant.organization_id, document.invoice_id).due_pico == 0
    assert tenant.balance().posted_pico == 2 * CENT
    assert legs(tenant) == {"revenue": 3 * CENT, "credit": 2 * CENT, "cash": -5 * CENT}
    assert reconcile() == []


def test_a_credit_note_takes_back_with_tax_and_what_was_paid_too_much_goes_back(
    django_database: object,
) -> None:
    tenant = postpaid()
    set_tax(tenant.organization_id, "VAT", 100_000, 14)
    spend(tenant, 100 * CENT)
    document = closed(tenant)
    record_payment(tenant.organization_id, document.invoice_id, 110 * CENT, "transfer")

    notes = at_once(
        [
            lambda: credit_note(
                tenant.organization_id, document.invoice_id, 30 * CENT, "outage", "note-1"
            )
            for _ in range(10)
        ]
    )
    assert len({note.invoice_id for note in notes}) == 1
    assert (notes[0].net_pico, notes[0].tax_pico) == (-30 * CENT, -3 * CENT)
    assert notes[0].corrects == document.invoice_id
    assert invoice(tenant.organization_id, document.invoice_id).due_pico == -33 * CENT

    record_payment(tenant.organization_id, document.invoice_id, -33 * CENT, "back")

    assert legs(tenant) == {"revenue": 70 * CENT, "tax": 7 * CENT, "cash": -77 * CENT}
    assert reconcile() == []


def test_notes_take_back_no_more_than_was_asked(django_database: object) -> None:
    tenant = postpaid()
    set_tax(tenant.organization_id, "VAT", 190_000, 14)
    spend(tenant, 3 * CENT)
    document = closed(tenant)
    for number in range(3):
        credit_note(tenant.organization_id, document.invoice_id, CENT, "", f"note-{number}")

    assert invoice(tenant.organization_id, document.invoice_id).due_pico == 0
    with pytest.raises(InvoiceConflict):
        credit_note(tenant.organization_id, document.invoice_id, CENT, "", "note-4")
    with pytest.raises(InvoiceNotFound):
        credit_note(tenant.organization_id, UUID(int=0), CENT, "", "note-5")
    assert reconcile() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_invoice SET net_pico = 0",
        "DELETE FROM billing_invoice",
        "UPDATE billing_invoice_line SET rounded_pico = 0",
        "DELETE FROM billing_invoice_line",
        "UPDATE billing_invoice_payment SET amount_pico = 1",
    ],
)
def test_not_even_the_tables_owner_changes_a_document(
    django_database: object, statement: str
) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    record_payment(tenant.organization_id, closed(tenant).invoice_id, CENT, "transfer")

    with (
        pytest.raises(IntegrityError, match="never changed"),
        tenant_scope(tenant.organization_id, "owner"),
        connections["owner"].cursor() as cursor,
    ):
        cursor.execute(statement)


def test_a_line_cannot_be_added_afterwards(acme: Tenant) -> None:
    spend(acme, 3 * CENT)
    document = closed(acme)

    with (
        pytest.raises(IntegrityError, match="not the sum of its lines"),
        tenant_scope(acme.organization_id, "housekeeper"),
        connections["housekeeper"].cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_invoice_line"
            " (id, organization_id, invoice_id, position, kind, exact_pico, rounded_pico)"
            " VALUES (uuidv7(), %s, %s, 99, 'usage', %s, %s)",
            [acme.organization_id, document.invoice_id, CENT, CENT],
        )


def test_a_limit_below_what_is_owed_is_refused(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)

    with pytest.raises(CreditLimitTooLow):
        set_credit_limit(tenant.organization_id, 2 * CENT)
    set_credit_limit(tenant.organization_id, 3 * CENT)

    assert tenant.balance().floor_pico == -3 * CENT
