"""A settle charges exactly once, exactly what was used, and never more than was held."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from django.db import connections
from hypothesis import given, settings
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from billing.contracts import (
    LedgerLeg,
    ReceiptNotFound,
    Settlement,
    SettlementInvalid,
    UsageCounts,
    UsageSource,
)
from billing.facade import (
    balance,
    cost_pico,
    estimate_pico,
    hold,
    receipt,
    reconcile,
    settle,
    void,
)
from billing.models import LedgerTransaction, UsageEvent
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, at_once, make_tenant, used
from tests.house import wait_until

TOKENS = st.integers(min_value=0, max_value=10**6)
PRICES = st.integers(min_value=0, max_value=10**10)


def books_of(tenant: Tenant, request_id: UUID) -> tuple[int, int]:
    """How many usage events and usage transactions a request has."""
    with tenant_scope(tenant.organization_id):
        events = UsageEvent.objects.filter(request_id=request_id).count()
        transactions = LedgerTransaction.objects.filter(
            idempotency_key=f"usage:{request_id}"
        ).count()
    return events, transactions


def test_a_settled_request_has_a_receipt_that_adds_up(acme: Tenant) -> None:
    tenant = acme.with_prices(50_000, 5_000, 250_000)
    request = tenant.held(prompt_tokens=100, output_tokens_max=50)
    before = tenant.balance()

    [settled] = settle([used(request, UsageCounts(36, 64, 7))])

    charge = 36 * 50_000 + 64 * 5_000 + 7 * 250_000
    assert settled == type(settled)(request.request_id, posted=True, charge_pico=charge)
    told = tenant.receipt(request)
    assert (told.state, told.held_pico, told.charge_pico) == ("posted", 17_500_000, charge)
    assert told.counts == UsageCounts(36, 64, 7)
    assert told.ledger_legs == (LedgerLeg("credit", -charge), LedgerLeg("revenue", charge))
    assert (told.model_served, told.finish_reason) == ("served", "stop")
    assert (told.queue_ms, told.prefill_ms, told.decode_ms) == (1, 2, 3)
    assert told.source is UsageSource.MEASURED
    assert told.settled_at is not None and told.settled_at > told.held_at
    after = tenant.balance()
    assert (after.posted_pico, after.held_pico) == (before.posted_pico - charge, 0)
    assert reconcile() == []


def test_an_open_request_has_a_receipt_without_a_charge(acme: Tenant) -> None:
    told = acme.receipt(acme.held())

    assert (told.state, told.charge_pico, told.settled_at) == ("open", 0, None)
    assert told.ledger_transaction_id is None


def test_another_tenants_receipt_is_not_found(acme: Tenant, globex: Tenant) -> None:
    request = acme.held()
    settle([used(request, UsageCounts(1, 0, 1))])

    with pytest.raises(ReceiptNotFound):
        receipt(globex.organization_id, request.request_id)


def test_reading_never_bills(acme: Tenant) -> None:
    request = acme.held()
    settle([used(request, UsageCounts(60, 0, 40))])
    before = acme.balance()

    for _ in range(3):
        acme.receipt(request)

    assert acme.balance() == before
    assert books_of(acme, request.request_id) == (1, 1)


def test_a_replayed_settle_answers_the_first_charge_and_changes_nothing(acme: Tenant) -> None:
    request = acme.held()
    settle([used(request, UsageCounts(60, 0, 10))])
    before = acme.balance()

    [again] = settle([used(request, UsageCounts(60, 0, 40))])

    assert (again.posted, again.charge_pico) == (False, 70)
    assert acme.balance() == before
    assert books_of(acme, request.request_id) == (1, 1)


def test_many_settles_at_once_post_once(acme: Tenant) -> None:
    request = acme.held()

    answers = at_once([partial(settle, [used(request, UsageCounts(60, 0, n))]) for n in range(8)])

    posted = [one for [one] in answers if one.posted]
    assert len(posted) == 1
    assert {one.charge_pico for [one] in answers} == {posted[0].charge_pico}
    assert books_of(acme, request.request_id) == (1, 1)
    assert reconcile() == []


def test_settle_and_void_at_once_leave_one_of_both(acme: Tenant) -> None:
    requests = [acme.held() for _ in range(10)]
    ids = [request.request_id for request in requests]

    at_once(
        [
            lambda: settle([used(one, UsageCounts(60, 0, 40)) for one in requests]),
            lambda: void(list(reversed(ids))),
            lambda: settle([used(one, UsageCounts(60, 0, 1)) for one in reversed(requests)]),
            lambda: void(ids),
        ]
    )

    told = [acme.receipt(request) for request in requests]
    assert all(one.state in {"posted", "voided"} for one in told)
    assert all((one.charge_pico > 0) == (one.state == "posted") for one in told)
    assert acme.balance().held_pico == 0
    assert reconcile() == []


def test_a_settle_after_a_void_charges_nothing(acme: Tenant) -> None:
    request = acme.held()
    void([request.request_id])

    [late] = settle([used(request, UsageCounts(60, 0, 40))])

    assert (late.posted, late.charge_pico) == (False, 0)
    assert books_of(acme, request.request_id) == (0, 0)


def test_an_id_nobody_held_is_answered_and_not_charged(django_database: object) -> None:
    stranger = Settlement(uuid7(), UsageCounts(1, 0, 1), "stop", "served")

    [answer] = settle([stranger])

    assert (answer.posted, answer.charge_pico) == (False, 0)


def test_a_hold_of_another_tenant_is_left_alone(acme: Tenant, globex: Tenant) -> None:
    request = acme.held()

    [answer] = settle(
        [
            replace(
                used(request, UsageCounts(60, 0, 40)),
                organization_id=globex.organization_id,
            )
        ]
    )

    assert (answer.posted, answer.charge_pico) == (False, 0)
    assert acme.receipt(request).state == "open"


def test_a_finish_from_a_journal_knows_no_tenant_and_is_settled(acme: Tenant) -> None:
    request = acme.held()

    [answer] = settle([replace(used(request, UsageCounts(60, 0, 40)), organization_id=None)])

    assert (answer.posted, answer.charge_pico) == (True, 100)


def test_what_the_hold_did_not_cover_is_written_off(
    acme: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    request = acme.held()
    before = acme.balance().posted_pico

    with caplog.at_level(logging.WARNING, logger="billing.holds"):
        [settled] = settle([used(request, UsageCounts(60, 0, 1_000))])

    assert settled.charge_pico == 100
    assert acme.balance().posted_pico == before - 100
    assert acme.receipt(request).ledger_legs == (
        LedgerLeg("credit", -100),
        LedgerLeg("revenue", 1_060),
        LedgerLeg("write_off", -960),
    )
    assert "written off" in caplog.text
    assert reconcile() == []


def test_a_balance_at_its_floor_survives_a_settle_above_the_hold(django_database: object) -> None:
    tenant = make_tenant(credit_pico=100)
    request = tenant.held()

    settle([used(request, UsageCounts(60, 0, 4_000))])

    assert tenant.balance().posted_pico == 0
    assert reconcile() == []


def test_a_zero_charge_has_its_event_and_its_transaction_too(acme: Tenant) -> None:
    request = acme.held()

    [settled] = settle([used(request, UsageCounts(), "cancelled")])

    assert (settled.posted, settled.charge_pico) == (True, 0)
    assert books_of(acme, request.request_id) == (1, 1)
    assert acme.receipt(request).ledger_legs == ()
    assert reconcile() == []


def test_a_count_that_cannot_be_true_is_refused_and_the_hold_stays_open(acme: Tenant) -> None:
    honest, broken = acme.held(), acme.held()
    lie = UsageCounts(1, 0, 1)
    object.__setattr__(lie, "output_tokens", -5)

    with pytest.raises(SettlementInvalid):
        settle([used(honest, UsageCounts(1, 0, 1)), used(broken, lie)])
    with pytest.raises(SettlementInvalid):
        settle([used(broken, UsageCounts(10**13, 0, 0))])

    assert acme.receipt(honest).state == acme.receipt(broken).state == "open"


def test_a_list_settles_each_of_its_items_in_the_order_asked(acme: Tenant, globex: Tenant) -> None:
    requests = [globex.held(), acme.held(), acme.held(), globex.held()]
    settle([used(requests[2], UsageCounts(60, 0, 0))])

    answers = settle([used(one, UsageCounts(10, 0, n)) for n, one in enumerate(requests)])

    assert [one.request_id for one in answers] == [one.request_id for one in requests]
    assert [one.posted for one in answers] == [True, True, False, True]
    assert [one.charge_pico for one in answers] == [10, 11, 60, 13]
    assert reconcile() == []


def test_a_thousand_small_charges_lose_nothing(django_database: object) -> None:
    tenant = make_tenant(credit_pico=10**9).with_prices(20_000, 0, 0)
    requests = [tenant.request(prompt_tokens=1, output_tokens_max=0) for _ in range(1_000)]

    hold(requests)
    settle([used(request, UsageCounts(1, 0, 0)) for request in requests])

    assert tenant.balance().posted_pico == 10**9 - 1_000 * 20_000


@given(
    prices=st.tuples(PRICES, PRICES, PRICES),
    asked=st.tuples(TOKENS, TOKENS),
    counts=st.builds(UsageCounts, TOKENS, TOKENS, TOKENS),
)
@settings(max_examples=40, deadline=None)
def test_the_database_charges_what_pricing_says(
    django_database: object,
    prices: tuple[int, int, int],
    asked: tuple[int, int],
    counts: UsageCounts,
) -> None:
    tenant = make_tenant(credit_pico=10**30).with_prices(*prices)
    request = tenant.held(*asked)

    [settled] = settle([used(request, counts)])

    cost = cost_pico(tenant.quote, counts)
    charge = min(cost, estimate_pico(tenant.quote, *asked))
    assert settled.charge_pico == charge
    assert balance(tenant.organization_id).posted_pico == 10**30 - charge
    legs = tenant.receipt(request).ledger_legs
    assert sum(leg.amount_pico for leg in legs) == 0
    assert sum(leg.amount_pico for leg in legs if leg.account_kind == "revenue") == cost


def test_a_deadlocks_victim_is_run_again(acme: Tenant) -> None:
    request = acme.held()
    owner = connections["owner"]
    lock = threading.Event()

    def settled() -> bool:
        assert lock.wait(timeout=30)
        try:
            return settle([used(request, UsageCounts(60, 0, 40))])[0].posted
        finally:
            connections.close_all()

    def somebody_waits() -> bool:
        with connections["housekeeper"].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(cursor.fetchone()[0])

    with ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(settled)
        with tenant_scope(acme.organization_id, "owner"), owner.cursor() as cursor:
            # The wrong order: the account first, then the hold that the settle has by then.
            cursor.execute("SELECT FROM billing_account FOR UPDATE")
            lock.set()
            wait_until(somebody_waits)
            cursor.execute(
                "SELECT FROM billing_hold WHERE id = %s FOR UPDATE", [request.request_id]
            )
        posted = answer.result(timeout=30)

    assert posted
    assert books_of(acme, request.request_id) == (1, 1)
    assert reconcile() == []
