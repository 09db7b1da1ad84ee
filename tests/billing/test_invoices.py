"""Closing months: what is owed is asked for once, in cents, with nothing lost on the way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.db import connections

from billing.contracts import (
    PICO,
    DraftBook,
    InvoiceKind,
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
    grant_credit,
    invoice,
    invoices,
    publish_book,
    quote,
    reconcile,
    reprice,
    set_tax,
    settle,
    tend_credit_of,
)
from billing.invoices.closing import close_period, next_period
from billing.invoices.periods import Period
from tenants.facade import operator_of, tenant_scope
from tests.billing.bills import CENT, close, closed, legs, month, postpaid, spend
from tests.billing.cast import Tenant, at_once, make_offer, used
from tests.billing.till import open_till


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
    for later in (1, 2, 3):
        spend(tenant, CENT + CENT // 4)
        document = closed(tenant, later)
        nets.append(document.net_pico)
        residues.append(document.residue_out_pico)

    assert nets == [CENT, CENT, 2 * CENT]
    assert residues == [CENT // 4, CENT // 2, -(CENT // 4)]
    assert legs(tenant)["rounding"] == CENT // 4
    assert reconcile() == []


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


def test_a_month_is_the_organizations_own(django_database: object) -> None:
    zone = "America/New_York"
    first_at = datetime(2026, 3, 1, 4, 59, tzinfo=UTC)

    february = next_period(zone, None, first_at)
    march = next_period(zone, february.end_at, first_at)

    assert february.end_at == datetime(2026, 3, 1, 5, tzinfo=UTC)
    assert march.end_at == datetime(2026, 4, 1, 4, tzinfo=UTC)


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


def test_books_that_cannot_be_closed_keep_nobody_elses_open(django_database: object) -> None:
    broken, sound = postpaid(), postpaid()
    for tenant in (broken, sound):
        spend(tenant, 3 * CENT)
    with (
        tenant_scope(broken.organization_id, "owner"),
        connections["owner"].cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind)"
            " VALUES (uuidv7(), %s, 'invoice:1', 'planted')",
            [broken.organization_id],
        )

    close_due(month().closes_at())

    assert invoices(broken.organization_id) == []
    assert broken.balance().posted_pico == -3 * CENT
    assert [one.net_pico for one in invoices(sound.organization_id)] == [3 * CENT]
    assert reconcile() == []


def test_a_time_zone_nobody_knows_keeps_no_other_month_open(django_database: object) -> None:
    odd, tenant = postpaid(), postpaid()
    for one in (odd, tenant):
        spend(one, CENT)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_organization SET time_zone = 'Mars/Olympus' WHERE id = %s",
            [odd.organization_id],
        )

    closed(tenant)

    assert invoices(odd.organization_id) == []
