"""A hold reserves money and tokens, or says why not and leaves nothing behind."""

import threading
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
from django.db import connections
from uuid_utils.compat import uuid7

from billing.contracts import HoldRefusal, ReceiptNotFound, UsageCounts
from billing.facade import (
    hold,
    receipt,
    reconcile,
    renew,
    set_daily_tokens,
    settle,
    void,
)
from billing.models import Hold, QuotaCounter
from tenants.facade import (
    archive_project,
    create_organization,
    create_project,
    issue_key,
    revoke_key,
    tenant_scope,
)
from tests.billing.cast import Tenant, at_once, make_tenant, refusals, used


def test_a_hold_reserves_the_most_a_request_can_cost(acme: Tenant) -> None:
    dear = acme.with_prices(50_000, 5_000, 250_000)

    [outcome] = hold([dear.request(prompt_tokens=10, output_tokens_max=4)])

    assert outcome.refusal is None
    assert outcome.amount_pico == 10 * 50_000 + 4 * 250_000
    assert acme.balance().held_pico == outcome.amount_pico


def test_a_dearer_cached_price_is_what_the_prompt_is_held_at(acme: Tenant) -> None:
    [outcome] = hold([acme.with_prices(1, 3, 0).request(prompt_tokens=10, output_tokens_max=4)])

    assert outcome.amount_pico == 30


def test_fifty_at_once_on_a_balance_for_ten_let_exactly_ten_pass(django_database: object) -> None:
    tenant = make_tenant(credit_pico=1_000)

    outcomes = at_once([lambda: hold([tenant.request()]) for _ in range(50)])

    said = refusals([outcome for [outcome] in outcomes])
    assert said.count(None) == 10
    assert said.count(HoldRefusal.INSUFFICIENT_QUOTA) == 40
    assert tenant.balance().held_pico == 1_000
    assert reconcile() == []


def test_a_list_takes_what_fits_and_refuses_the_rest(django_database: object) -> None:
    tenant = make_tenant(credit_pico=250)
    requests = [
        tenant.request(60, 40),
        tenant.request(600, 40),
        tenant.request(100, 0),
        tenant.request(51, 0),
        tenant.request(50, 0),
    ]

    outcomes = hold(requests)

    assert [outcome.request_id for outcome in outcomes] == [one.request_id for one in requests]
    assert refusals(outcomes) == [None, "insufficient_quota", None, "insufficient_quota", None]
    assert tenant.balance().held_pico == 250
    assert reconcile() == []


def test_a_refused_hold_has_no_receipt(django_database: object) -> None:
    poor = make_tenant(credit_pico=0)
    request = poor.request()

    assert refusals(hold([request])) == ["insufficient_quota"]
    with pytest.raises(ReceiptNotFound):
        poor.receipt(request)


def test_an_organization_without_an_account_buys_nothing(acme: Tenant) -> None:
    organization_id = create_organization(f"bare-{uuid4().hex[:12]}", "bare").organization_id
    project_id = create_project(organization_id, "demo")
    key = issue_key(organization_id, project_id, "test")
    request = replace(
        acme.request(),
        organization_id=organization_id,
        project_id=project_id,
        key_id=key.key_id,
    )

    assert refusals(hold([request])) == ["insufficient_quota"]


def test_a_hold_at_an_explicit_price_of_zero_needs_no_balance(django_database: object) -> None:
    free = make_tenant(credit_pico=0).with_prices(0, 0, 0)
    request = free.request()

    assert refusals(hold([request])) == [None]
    [settled] = settle([used(request, UsageCounts(60, 0, 40))])

    assert settled.posted and settled.charge_pico == 0
    assert free.receipt(request).ledger_transaction_id is not None
    assert reconcile() == []


def test_the_same_id_twice_is_held_once(acme: Tenant) -> None:
    request = acme.held()

    assert refusals(hold([request])) == ["duplicate"]
    assert acme.balance().held_pico == 100


def test_the_same_id_from_many_threads_is_held_once(acme: Tenant) -> None:
    request = acme.request()

    outcomes = at_once([lambda: hold([request]) for _ in range(8)])

    assert sorted(refusals([one for [one] in outcomes]), key=str) == [None] + ["duplicate"] * 7
    assert acme.balance().held_pico == 100


def test_another_tenants_id_is_a_duplicate_and_stays_theirs(acme: Tenant, globex: Tenant) -> None:
    request = acme.held()

    assert refusals(hold([replace(globex.request(), request_id=request.request_id)])) == [
        "duplicate"
    ]
    assert globex.balance().held_pico == 0


def test_an_id_twice_in_one_list_is_a_mistake_of_the_caller(acme: Tenant) -> None:
    request = acme.request()

    with pytest.raises(ValueError, match="twice"):
        hold([request, request])


def test_a_revoked_key_holds_nothing(acme: Tenant) -> None:
    revoke_key(acme.organization_id, acme.key_id)

    assert refusals(hold([acme.request()])) == ["key_revoked"]
    assert acme.balance().held_pico == 0


def test_a_key_of_an_archived_project_holds_nothing(acme: Tenant) -> None:
    archive_project(acme.organization_id, acme.project_id)

    assert refusals(hold([acme.request()])) == ["project_archived"]


def test_a_key_spends_only_for_its_own_tenant_and_project(acme: Tenant, globex: Tenant) -> None:
    sibling = create_project(acme.organization_id, "sibling")
    requests = [
        replace(acme.request(), key_id=globex.key_id),
        replace(acme.request(), organization_id=globex.organization_id),
        replace(acme.request(), project_id=sibling),
    ]

    assert refusals(hold(requests)) == ["key_revoked"] * 3
    assert acme.balance().held_pico == globex.balance().held_pico == 0


def test_a_void_gives_everything_back_without_a_trace_of_usage(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 1_000)
    before = acme.balance()
    request = acme.held()

    void([request.request_id])
    void([request.request_id, uuid7()])

    assert acme.balance() == before
    told = acme.receipt(request)
    assert (told.state, told.charge_pico, told.ledger_legs) == ("voided", 0, ())
    assert told.source is None
    assert reconcile() == []


def test_renewing_moves_only_open_holds(acme: Tenant) -> None:
    open_one, closed_one = acme.held(), acme.held()
    void([closed_one.request_id])

    renew([open_one.request_id, closed_one.request_id, uuid7()])

    with tenant_scope(acme.organization_id):
        first = Hold.objects.get(id=open_one.request_id)
        second = Hold.objects.get(id=closed_one.request_id)
    assert first.renewed_at > first.created_at
    assert second.renewed_at == second.created_at


def test_a_daily_quota_admits_what_fits_and_no_token_more(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 250)

    outcomes = at_once([lambda: hold([acme.request()]) for _ in range(8)])

    said = refusals([one for [one] in outcomes])
    assert said.count(None) == 2
    assert said.count("quota_exceeded") == 6
    assert acme.balance().held_pico == 200
    assert reconcile() == []


def test_a_list_over_the_daily_quota_keeps_the_items_that_fit(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 150)

    outcomes = hold([acme.request(), acme.request(), acme.request(50, 0)])

    assert refusals(outcomes) == [None, "quota_exceeded", None]
    assert reconcile() == []


def test_the_quota_counts_what_was_used_and_forgets_what_was_not(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 150)
    settle([used(acme.held(), UsageCounts(20, 10, 5))])

    assert refusals(hold([acme.request(60, 56)])) == ["quota_exceeded"]
    assert refusals(hold([acme.request(60, 55)])) == [None]


def test_refused_requests_consume_no_quota(django_database: object) -> None:
    poor = make_tenant(credit_pico=120)
    set_daily_tokens(poor.organization_id, 1_000)
    poor.held()

    for _ in range(20):
        assert refusals(hold([poor.request()])) == ["insufficient_quota"]

    assert reconcile() == []
    assert refusals(hold([poor.request(20, 0)])) == [None]


def test_a_quota_refund_for_lack_of_money_survives_a_race(django_database: object) -> None:
    poor = make_tenant(credit_pico=300)
    set_daily_tokens(poor.organization_id, 1_000_000)

    at_once([lambda: hold([poor.request(), poor.request()]) for _ in range(12)])

    assert poor.balance().held_pico == 300
    assert reconcile() == []


def test_lifting_the_daily_quota_lets_requests_pass_again(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 0)
    assert refusals(hold([acme.request()])) == ["quota_exceeded"]

    set_daily_tokens(acme.organization_id, None)

    assert refusals(hold([acme.request()])) == [None]


def test_a_quota_window_starts_at_midnight_utc(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 1_000)
    request = acme.held()

    with tenant_scope(acme.organization_id):
        counter = QuotaCounter.objects.get()
        held_at = Hold.objects.get(id=request.request_id).created_at
    assert counter.window_start == held_at.replace(hour=0, minute=0, second=0, microsecond=0)
    assert counter.window_start.utcoffset() is not None


def test_lists_in_opposite_order_do_not_deadlock(
    acme: Tenant, globex: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.retry.TRIES_MAX", 1)  # a deadlock would surface
    start = threading.Barrier(8)

    def one_way(tenants: tuple[Tenant, Tenant]) -> None:
        start.wait(timeout=30)
        for _ in range(10):
            requests = [tenant.request() for tenant in tenants]
            assert refusals(hold(requests)) == [None, None]
            settle([used(one, UsageCounts(60, 0, 40)) for one in requests])

    at_once([partial(one_way, pair) for pair in [(acme, globex), (globex, acme)] * 4])

    assert acme.balance().held_pico == globex.balance().held_pico == 0
    assert reconcile() == []


def test_money_refuses_to_move_inside_somebody_elses_transaction(acme: Tenant) -> None:
    with tenant_scope(acme.organization_id), pytest.raises(AssertionError, match="of its own"):
        hold([acme.request()])

    assert not connections["default"].in_atomic_block


def test_amounts_far_past_sixty_four_bits_stay_exact(django_database: object) -> None:
    rich = make_tenant(credit_pico=10**37).with_prices(10**10, 0, 0)
    request = rich.held(prompt_tokens=10**12, output_tokens_max=0)

    [settled] = settle([used(request, UsageCounts(10**12 - 1, 1, 0))])

    assert settled.charge_pico == (10**12 - 1) * 10**10
    assert rich.balance().posted_pico == 10**37 - settled.charge_pico
    assert receipt(rich.organization_id, request.request_id).held_pico == 10**22
