"""Repricing corrects past usage by entries of its own, once, and never past a floor."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.contracts import (
    DraftBook,
    HoldRequest,
    PriceBookInvalid,
    PriceEntry,
    PricesUnchanged,
    Repriced,
    ServiceTier,
    SettlementInvalid,
    TokenClass,
    UsageCounts,
)
from billing.facade import publish_book, quote, reconcile, reprice, set_price, settle
from tests.billing.cast import Tenant, at_once, make_offer, make_tenant, used
from tests.books import rows
from tests.house import wait_until

INTERACTIVE = ServiceTier.INTERACTIVE
COUNTS = UsageCounts(50, 10, 40)


def fresh() -> str:
    """A public id of this test's own."""
    return f"repriced-{uuid4().hex[:12]}"


def sold(tenant: Tenant, model: str) -> HoldRequest:
    """A settled request for 50 uncached, 10 cached and 40 output tokens of a model."""
    quoted = tenant.quoted(quote(tenant.organization_id, tenant.project_id, model, INTERACTIVE))
    request = quoted.held(60, 40)
    settle([replace(used(request, COUNTS), model_served=model)])
    return request


def list_prices(model: str, *prices: int | None) -> int:
    """Publish a book of input, cached input and output prices; returns its version."""
    classes = (TokenClass.INPUT, TokenClass.CACHED_INPUT, TokenClass.OUTPUT)
    entries = tuple(
        PriceEntry(model, INTERACTIVE, token_class, price)
        for token_class, price in zip(classes, prices, strict=True)
        if price is not None
    )
    return publish_book(DraftBook(entries), "test", accept_warnings=True).version


def repriced(model: str, **options: object) -> list[Repriced]:
    """Reprice the last hour."""
    now = datetime.now(UTC)
    return list(
        reprice(
            model,
            now - timedelta(hours=1),
            now + timedelta(minutes=1),
            "typed per token",
            "test",
            **options,  # type: ignore[arg-type]
        )
    )


def corrections(request: HoldRequest) -> list[tuple[int, int, int, int]]:
    """Old, new, charged and written off, in the order made."""
    return [
        tuple(int(value) for value in row)  # type: ignore[misc]
        for row in rows(
            "SELECT old_pico, new_pico, charged_pico, written_off_pico FROM billing_correction"
            " WHERE request_id = %s ORDER BY id",
            request.request_id,
        )
    ]


def event(request: HoldRequest) -> tuple[int, int, int]:
    """Its input price, cost and charge."""
    [(micros, cost, charge)] = rows(
        "SELECT input_micros_per_mtok, cost_pico, charge_pico FROM billing_usage_event"
        " WHERE request_id = %s",
        request.request_id,
    )
    return int(micros), int(cost), int(charge)


def test_a_cheaper_price_gives_the_difference_back(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    before = acme.balance().posted_pico
    request = sold(acme, model)
    list_prices(model, 4, 2, 8)

    [answer] = repriced(model)

    new_cost = 50 * 4 + 10 * 2 + 40 * 8
    assert answer == Repriced(acme.organization_id, 1, 0, 1_000 - new_cost, 0)
    assert acme.balance().posted_pico == before - new_cost
    assert corrections(request) == [(1_000, new_cost, new_cost - 1_000, 0)]
    assert reconcile() == []


def test_a_correction_points_at_the_entry_it_corrects_and_the_event_stays(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 4, 4, 4)

    repriced(model)

    assert event(request) == (10, 1_000, 1_000)
    [(kind, reverses, credit)] = rows(
        "SELECT t.kind, t.reverses, l.amount_pico FROM billing_correction c"
        " JOIN billing_ledger_tx t ON t.id = c.ledger_tx_id"
        " JOIN billing_ledger_leg l ON l.transaction_id = t.id"
        " JOIN billing_ledger_account a ON a.id = l.account_id AND a.kind = 'credit'"
        " WHERE c.request_id = %s",
        request.request_id,
    )
    assert (kind, reverses, credit) == (
        "correction",
        acme.receipt(request).ledger_transaction_id,
        600,
    )


def test_the_receipt_shows_the_charge_as_it_was_and_what_was_made_of_it(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 4, 4, 4)

    repriced(model)

    told = acme.receipt(request)
    [correction] = told.corrections
    assert (told.charge_pico, told.input_micros_per_mtok) == (1_000, 10)
    assert (correction.old_pico, correction.new_pico, correction.charged_pico) == (1_000, 400, -600)
    assert correction.reason == "typed per token"
    assert correction.ledger_transaction_id != told.ledger_transaction_id


def test_cache_writes_that_no_hold_has_a_price_for_are_never_dropped(acme: Tenant) -> None:
    request = acme.held(60, 40)

    with pytest.raises(SettlementInvalid, match="cache writes"):
        settle([used(request, UsageCounts(50, 0, 40, 10))])

    assert acme.receipt(request).state == "open"


def test_a_dearer_price_charges_the_difference(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    before = acme.balance().posted_pico
    list_prices(model, 11, 11, 11)

    [answer] = repriced(model)

    assert (answer.charged_pico, answer.written_off_pico) == (100, 0)
    assert acme.balance().posted_pico == before - 100
    assert corrections(request) == [(1_000, 1_100, 100, 0)]
    assert reconcile() == []


def test_what_was_sold_for_nothing_by_mistake_is_charged_after_all(acme: Tenant) -> None:
    model = make_offer(fresh(), 0, 0, 0)
    request = sold(acme, model)
    before = acme.balance().posted_pico
    list_prices(model, 10, 10, 10)

    repriced(model)

    assert corrections(request) == [(0, 1_000, 1_000, 0)]
    assert acme.balance().posted_pico == before - 1_000
    assert reconcile() == []


Prices = tuple[int, int, int]
PRICES = st.tuples(*[st.integers(0, 3)] * 3)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=PRICES, books=st.lists(PRICES, min_size=1, max_size=4))
def test_whatever_the_books_said_in_between_the_last_one_is_what_was_paid(
    django_database: object, first: Prices, books: list[Prices]
) -> None:
    acme = make_tenant("often-corrected", credit_pico=10**6)
    model = make_offer(fresh(), *first)
    sold(acme, model)

    for prices in books:
        with suppress(PricesUnchanged):
            list_prices(model, *prices)
            repriced(model)

    paid = 10**6 - acme.balance().posted_pico
    assert paid == sum(n * price for n, price in zip((50, 10, 40), books[-1], strict=True))
    assert reconcile() == []


def test_what_the_balance_does_not_cover_is_written_off() -> None:
    acme = make_tenant("poor", credit_pico=1_030)
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 20, 20, 20)

    [answer] = repriced(model)

    assert (answer.charged_pico, answer.written_off_pico) == (30, 970)
    assert acme.balance().posted_pico == 0
    assert corrections(request) == [(1_000, 2_000, 30, 970)]
    assert reconcile() == []


def test_repricing_twice_by_one_book_corrects_once(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 4, 4, 4)

    repriced(model)
    [again] = repriced(model)

    assert again.events == 0
    assert len(corrections(request)) == 1


def test_repricing_at_once_corrects_once(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    requests = [sold(acme, model) for _ in range(5)]
    list_prices(model, 4, 4, 4)

    answers = at_once([lambda: repriced(model)] * 6)

    assert sum(answer.events for [answer] in answers) == 5
    assert [len(corrections(request)) for request in requests] == [1] * 5
    assert reconcile() == []


def test_a_later_book_starts_from_what_an_earlier_one_corrected(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    before = acme.balance().posted_pico
    list_prices(model, 4, 4, 4)
    repriced(model)
    list_prices(model, 6, 6, 6)

    repriced(model)

    assert corrections(request) == [(1_000, 400, -600, 0), (400, 600, 200, 0)]
    assert acme.balance().posted_pico == before + 400
    assert reconcile() == []


def test_a_book_can_be_named(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    first = list_prices(model, 4, 4, 4)
    list_prices(model, 6, 6, 6)

    repriced(model, version=first)

    assert corrections(request) == [(1_000, 400, -600, 0)]
    with pytest.raises(PriceBookInvalid, match="no such book"):
        repriced(model, version=10**6)


def test_a_dry_run_says_the_same_and_writes_nothing(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    before = acme.balance()
    list_prices(model, 4, 4, 4)

    dry = repriced(model, dry_run=True)

    assert corrections(request) == []
    assert acme.balance() == before
    assert dry == repriced(model)


def test_cached_input_without_a_price_of_its_own_follows_input(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 10)
    request = sold(acme, model)
    list_prices(model, 4, None, None)

    repriced(model)

    assert corrections(request) == [(1_000, 60 * 4 + 40 * 10, -360, 0)]


def test_the_list_never_touches_what_was_sold_at_a_tenants_own_price(
    acme: Tenant, globex: Tenant
) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    set_price(model, INTERACTIVE, "input", 5, organization_id=acme.organization_id)
    ours, theirs = sold(acme, model), sold(globex, model)
    list_prices(model, 20, 20, 20)

    repriced(model)

    assert corrections(theirs) == [(1_000, 2_000, 1_000, 0)]
    assert corrections(ours) == [(750, 50 * 5 + 50 * 20, 500, 0)]
    assert reconcile() == []


def test_a_tenants_book_corrects_that_tenant_alone(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    ours, theirs = sold(acme, model), sold(globex, model)
    set_price(model, INTERACTIVE, "output", 1, organization_id=acme.organization_id)

    [answer] = repriced(model, organization_id=acme.organization_id)

    assert answer.organization_id == acme.organization_id
    assert corrections(ours) == [(1_000, 640, -360, 0)]
    assert corrections(theirs) == []


def test_only_the_span_of_time_is_corrected(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 4, 4, 4)
    now = datetime.now(UTC)

    answers = list(reprice(model, now - timedelta(days=2), now - timedelta(days=1), "why", "test"))

    assert answers == []
    assert corrections(request) == []
    with pytest.raises(PriceBookInvalid, match="empty"):
        list(reprice(model, now, now, "why", "test"))
    with pytest.raises(PriceBookInvalid, match="reason"):
        list(reprice(model, now - timedelta(days=2), now, "", "test"))


def test_more_events_than_fit_one_transaction_are_all_corrected(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.catalog.repricing.PART_MAX", 2)
    model = make_offer(fresh(), 10, 10, 10)
    requests: list[UUID] = [sold(acme, model).request_id for _ in range(5)]
    list_prices(model, 4, 4, 4)

    [answer] = repriced(model)

    assert answer.events == len(requests)
    assert answer.given_back_pico == 5 * 600
    assert reconcile() == []


def test_no_event_of_one_moment_is_lost_between_two_transactions(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.catalog.repricing.PART_MAX", 2)
    model = make_offer(fresh(), 10, 10, 10)
    quoted = acme.quoted(quote(acme.organization_id, acme.project_id, model, INTERACTIVE))
    requests = [quoted.held(60, 40) for _ in range(5)]
    settle([replace(used(request, COUNTS), model_served=model) for request in requests])
    list_prices(model, 4, 4, 4)

    [dry] = repriced(model, dry_run=True)
    [answer] = repriced(model)

    moments = "SELECT count(DISTINCT occurred_at) FROM billing_usage_event WHERE model_served = %s"
    assert rows(moments, model) == [(1,)]
    assert (answer.events, answer.given_back_pico) == (5, 3_000)
    assert answer == dry
    assert reconcile() == []


def test_requests_go_on_until_repricing_posts(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = sold(acme, model)
    list_prices(model, 4, 4, 4)
    turn = f"billing_correct_events:{acme.organization_id}"

    def waits() -> bool:
        return bool(rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))

    def repriced_beside() -> list[Repriced]:
        try:
            return repriced(model)
        finally:
            connections.close_all()

    with ThreadPoolExecutor() as beside:
        with transaction.atomic("owner"), connections["owner"].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [turn])
            answer = beside.submit(repriced_beside)
            wait_until(waits)
            before = acme.balance().posted_pico
            sold(acme, model)
            assert acme.balance().posted_pico < before
            assert corrections(request) == []

        assert answer.result()[0].events == 1, "the other was sold at the new prices"
    assert reconcile() == []
