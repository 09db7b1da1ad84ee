"""Invoices: what is owed is asked for once, in cents, with nothing lost on the way."""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connections
from pypdf import PdfReader

from billing.contracts import (
    PICO,
    BillingProfile,
    CreditLimitTooLow,
    DraftBook,
    Invoice,
    InvoiceConflict,
    InvoiceKind,
    InvoiceNotFound,
    LineKind,
    PriceEntry,
    ServiceTier,
    TokenClass,
    UsageCounts,
)
from billing.facade import (
    begin_topup,
    close_due,
    complete_topup,
    credit_grants,
    credit_note,
    forget_addresses,
    grant_credit,
    invoice,
    invoice_pdf,
    invoices,
    publish_book,
    quote,
    reconcile,
    record_payment,
    refund_topup,
    reprice,
    save_billing_settings,
    save_profile,
    set_credit_limit,
    set_tax,
    settle,
    tend_credit_of,
)
from billing.invoices.closing import close_period, next_period
from billing.invoices.periods import Period, month_of
from tenants.facade import operator_of, tenant_scope
from tests.billing.cast import Tenant, at_once, make_offer, make_tenant, used
from tests.billing.till import open_till

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


def month() -> Period:
    """This month of UTC."""
    return month_of(datetime.now(UTC), ZoneInfo("UTC"))


def close(tenant: Tenant, period: Period, zone: str = "UTC") -> Invoice:
    """The tenant's document of a period, as of when its grace is over."""
    return close_period(tenant.organization_id, period, zone, period.closes_at())


def test_a_period_waits_for_late_events(acme: Tenant) -> None:
    period = month()

    with pytest.raises(ValueError, match="waits"):
        close_period(
            acme.organization_id, period, "UTC", period.closes_at() - timedelta(microseconds=1)
        )
    assert invoices(acme.organization_id) == []


def test_fifty_closings_issue_one_document(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)

    issued = at_once([lambda: close(tenant, month()) for _ in range(50)])

    assert len({one.invoice_id for one in issued}) == 1
    assert legs(tenant)["receivable"] == -3 * CENT
    assert reconcile() == []


def test_usage_that_goes_on_while_a_month_is_closed_is_of_the_next(
    django_database: object,
) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    requests = [tenant.held(CENT, 0) for _ in range(8)]
    last_month = Period(month().start_at, datetime.now(UTC))
    usage: list[Callable[[], object]] = [
        partial(settle, [used(one, UsageCounts(CENT, 0, 0))]) for one in requests
    ]

    closing: Callable[[], object] = partial(close, tenant, last_month)

    at_once([closing, *usage])

    first = invoices(tenant.organization_id)[0]
    rest = close(tenant, Period(last_month.end_at, month().end_at))

    assert first.exact_pico == 3 * CENT
    assert rest.exact_pico == 8 * CENT
    assert tenant.balance().posted_pico == 0
    assert reconcile() == []


def test_a_late_event_becomes_a_correction_with_both_dates(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    earlier = Period(month().start_at, datetime.now(UTC))
    first = close(tenant, earlier)
    spend(tenant, CENT)
    late_at = earlier.start_at + timedelta(seconds=1)
    with (
        tenant_scope(tenant.organization_id, "owner"),
        connections["owner"].cursor() as cursor,
    ):
        for table, column in (
            ("billing_usage_event", "occurred_at"),
            ("billing_usage_delta", "occurred_at"),
            ("billing_hold", "closed_at"),
        ):
            cursor.execute(
                f"UPDATE {table} SET {column} = %s WHERE {column} >= %s",
                [late_at, earlier.end_at],
            )
    spend(tenant, 2 * CENT)

    second = close(tenant, Period(earlier.end_at, month().end_at))

    whole = invoice(tenant.organization_id, second.invoice_id)
    lines = {line.kind: line for line in whole.lines if line.kind is not LineKind.GRANT}
    assert set(lines) == {LineKind.USAGE, LineKind.CORRECTION}
    correction = lines[LineKind.CORRECTION]
    assert (correction.exact_pico, correction.tokens) == (CENT, CENT)
    assert correction.of_period_start_at == earlier.start_at
    assert correction.of_period_end_at == earlier.end_at
    assert (first.net_pico, second.net_pico) == (3 * CENT, 3 * CENT)
    assert invoice(tenant.organization_id, first.invoice_id).net_pico == 3 * CENT
    assert reconcile() == []


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


def test_numbers_have_no_gap_over_months_and_notes(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    first = closed(tenant)
    note = credit_note(tenant.organization_id, first.invoice_id, CENT, "sorry", "note-1")
    second = closed(tenant, 2)

    assert [one.number for one in (first, note, second)] == [1, 2, 3]


def test_an_invoice_is_paid_once_and_not_more_than_it_asks(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    document = closed(tenant)

    def pay(amount_pico: int, reference: str) -> bool:
        return record_payment(tenant.organization_id, document.invoice_id, amount_pico, reference)

    told = at_once([lambda: pay(2 * CENT, "transfer 1") for _ in range(20)])
    with pytest.raises(InvoiceConflict):
        pay(2 * CENT, "transfer 2")
    with pytest.raises(InvoiceConflict):
        pay(CENT, "transfer 1")
    pay(CENT, "transfer 3")

    assert told.count(True) == 1
    assert invoice(tenant.organization_id, document.invoice_id).due_pico == 0
    assert legs(tenant) == {"revenue": 3 * CENT, "cash": -3 * CENT}
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


def test_a_month_is_the_organizations_own(django_database: object) -> None:
    zone = "America/New_York"
    first_at = datetime(2026, 3, 1, 4, 59, tzinfo=UTC)

    february = next_period(zone, None, first_at)
    march = next_period(zone, february.end_at, first_at)

    assert february.end_at == datetime(2026, 3, 1, 5, tzinfo=UTC)
    assert march.end_at == datetime(2026, 4, 1, 4, tzinfo=UTC)


def read(document: Invoice, issuer: str = "Headrace\nDam 1") -> str:
    """The text of the paper."""
    pages = PdfReader(io.BytesIO(invoice_pdf(document, issuer))).pages
    return "\n".join(page.extract_text() for page in pages)


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


def test_grants_after_an_invoice_pay_for_what_comes_after_it(django_database: object) -> None:
    tenant = postpaid()
    spend(tenant, 3 * CENT)
    closed(tenant)
    grant_credit(tenant.organization_id, 10 * CENT, "gift")

    assert tenant.balance().posted_pico == 10 * CENT
    spend(tenant, 4 * CENT)
    second = closed(tenant, 2)

    assert second.kind is InvoiceKind.STATEMENT
    assert reconcile() == []


def test_a_corrected_price_is_a_line_of_the_next_document(django_database: object) -> None:
    tenant = postpaid()
    model = make_offer(f"slip-{uuid4().hex[:12]}", CENT, CENT, CENT)
    quoted = tenant.quoted(
        quote(tenant.organization_id, tenant.project_id, model, ServiceTier.INTERACTIVE)
    )
    settle([replace(used(quoted.held(10, 0), UsageCounts(10, 0, 0)), model_served=model)])
    earlier = Period(month().start_at, datetime.now(UTC))
    first = close(tenant, earlier)
    half = PriceEntry(model, ServiceTier.INTERACTIVE, TokenClass.INPUT, CENT // 2)
    publish_book(DraftBook((half,)), "test", accept_warnings=True)
    list(reprice(model, earlier.start_at, earlier.end_at, "typed twice", "test"))
    spend(tenant, 7 * CENT)

    second = close(tenant, Period(earlier.end_at, month().end_at))

    assert first.net_pico == 10 * CENT
    told = {line.kind: line for line in second.lines if line.kind is not LineKind.GRANT}
    assert told[LineKind.CORRECTION].exact_pico == -5 * CENT
    assert told[LineKind.CORRECTION].of_period_end_at == earlier.end_at
    assert (second.kind, second.net_pico) == (InvoiceKind.INVOICE, 2 * CENT)
    assert tenant.balance().posted_pico == 0
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


def test_everything_at_once_loses_nothing(django_database: object) -> None:
    tenant = postpaid(credit_pico=PICO)
    organization_id = tenant.organization_id
    last_month = Period(month().start_at, datetime.now(UTC))
    with open_till():
        top_ups = [
            begin_topup(operator_of(organization_id), 2 * PICO, f"{n}").top_up for n in range(4)
        ]
    requests = [tenant.held(CENT, 0) for _ in range(12)]
    crowd: list[Callable[[], object]] = [
        *[partial(settle, [used(one, UsageCounts(CENT, 0, 0))]) for one in requests],
        *[partial(complete_topup, f"pay_{one.top_up_id.hex}", 2 * PICO) for one in top_ups],
        *[partial(grant_credit, organization_id, CENT, f"gift-{n}") for n in range(4)],
        *[partial(credit_grants, organization_id) for _ in range(4)],
        *[partial(close, tenant, last_month) for _ in range(2)],
        *[partial(tend_credit_of, organization_id, datetime.now(UTC)) for _ in range(2)],
    ]

    at_once(crowd)

    assert tenant.balance().posted_pico == PICO + 8 * PICO + 4 * CENT - 12 * CENT
    assert reconcile() == []
