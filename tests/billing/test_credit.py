"""Credit grants: the order they burn in, their beginning and end, and that money comes in once."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.contracts import CreditConflict, GrantCategory, HoldRefusal, UsageCounts
from billing.credit.burning import Grant, burn, burn_order, expire
from billing.facade import (
    credit_grants,
    grant_credit,
    hold,
    reconcile,
    settle,
    tend_credit,
    tend_credit_of,
)
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, at_once, make_tenant, used

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
GIFT, PAID = GrantCategory


def spend(tenant: Tenant, amount_pico: int) -> None:
    """Use tokens that cost this much."""
    [settled] = settle([used(tenant.held(amount_pico, 0), UsageCounts(amount_pico, 0, 0))])
    assert settled.charge_pico == amount_pico


def left(tenant: Tenant) -> dict[str, int]:
    """What remains of each grant, by the name it was given."""
    return {
        grant.source.removeprefix("grant:"): grant.remaining_pico
        for grant in credit_grants(tenant.organization_id)
    }


@pytest.fixture
def poor(django_database: object) -> Tenant:
    """A tenant without any credit."""
    return make_tenant(credit_pico=0)


def test_usage_burns_gifts_then_priorities_then_what_ends_first(poor: Tenant) -> None:
    organization_id = poor.organization_id
    grant_credit(organization_id, 10, "paid", category=PAID)
    grant_credit(organization_id, 10, "later", priority=5)
    grant_credit(organization_id, 10, "endless")
    grant_credit(organization_id, 10, "ending", expires_at=NOW + DAY)

    seen = []
    for _ in range(4):
        spend(poor, 10)
        seen.append([name for name, remaining in left(poor).items() if remaining == 0])

    order = [set(after) - set(before) for before, after in itertools.pairwise([[], *seen])]
    assert order == [{"ending"}, {"endless"}, {"later"}, {"paid"}]
    assert reconcile() == []


def test_a_grant_that_comes_later_pays_only_what_is_used_later(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "paid", category=PAID)
    spend(poor, 40)

    grant_credit(poor.organization_id, 100, "gift")
    spend(poor, 30)

    assert left(poor) == {"paid": 60, "gift": 70}


def test_a_debt_is_paid_by_the_next_grant(django_database: object) -> None:
    tenant = make_tenant(credit_pico=0, floor_pico=-100)
    spend(tenant, 60)

    grant_credit(tenant.organization_id, 100, "gift")

    assert left(tenant) == {"gift": 40}
    assert tenant.balance().posted_pico == 40
    assert reconcile() == []


def test_a_grant_is_no_part_of_the_balance_before_it_begins(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "next week", effective_at=NOW + 7 * DAY)
    assert poor.balance().posted_pico == 0

    tend_credit_of(poor.organization_id, NOW + 7 * DAY)

    assert poor.balance().posted_pico == 100
    assert reconcile() == []


def test_an_expired_grant_leaves_what_open_holds_reserve(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "ending", expires_at=NOW + DAY)
    request = poor.held(30, 0)

    tend_credit_of(poor.organization_id, NOW + DAY)
    assert (poor.balance().posted_pico, left(poor)) == (30, {"ending": 30})

    settle([used(request, UsageCounts(20, 0, 0))])
    tend_credit_of(poor.organization_id, NOW + DAY)
    assert (poor.balance().posted_pico, left(poor)) == (0, {"ending": 0})
    assert expired_pico(poor) == 80
    assert reconcile() == []


def test_no_hold_counts_on_credit_that_has_ended(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "ending", expires_at=NOW + DAY)
    first, second = poor.held(50, 0), poor.held(50, 0)
    tend_credit_of(poor.organization_id, NOW + DAY)

    settle([used(first, UsageCounts(1, 0, 0))])
    [refused] = hold([poor.request(1, 0)])
    assert refused.refusal is HoldRefusal.INSUFFICIENT_QUOTA

    settle([used(second, UsageCounts(50, 0, 0))])
    tend_credit()
    assert (poor.balance().posted_pico, left(poor)) == (0, {"ending": 0})
    assert expired_pico(poor) == 49
    assert reconcile() == []


def expired_pico(tenant: Tenant) -> int:
    """What the tenant's `expired` account says."""
    with tenant_scope(tenant.organization_id), connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT sum(l.amount_pico) FROM billing_ledger_leg l"
            " JOIN billing_ledger_account a ON a.id = l.account_id WHERE a.kind = 'expired'"
        )
        row = cursor.fetchone()
    return int(row[0])


def test_the_task_tends_whoever_is_due(poor: Tenant, globex: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "ending", expires_at=NOW + DAY)
    before = globex.balance()

    assert tend_credit(NOW + 2 * DAY) >= 1

    assert poor.balance().posted_pico == 0
    assert globex.balance() == before
    assert reconcile() == []


def test_a_key_used_for_another_kind_of_grant_is_a_conflict(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "mine")

    with pytest.raises(CreditConflict):
        grant_credit(poor.organization_id, 100, "mine", category=PAID)
    assert poor.balance().posted_pico == 100


@pytest.mark.parametrize(
    ("priority", "effective_at", "expires_at"),
    [(0, None, NOW - DAY), (0, NOW + 2 * DAY, NOW + DAY), (-1, None, None)],
)
def test_a_grant_makes_sense(
    poor: Tenant, priority: int, effective_at: datetime | None, expires_at: datetime | None
) -> None:
    with pytest.raises(ValueError, match=r"grant|priority"):
        grant_credit(
            poor.organization_id,
            100,
            "odd",
            priority=priority,
            effective_at=effective_at,
            expires_at=expires_at,
        )
    assert poor.balance().posted_pico == 0


def test_a_grant_is_in_the_audit_log(poor: Tenant) -> None:
    grant_credit(poor.organization_id, 100, "mine")

    with tenant_scope(poor.organization_id), connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT details ->> 'amount_pico' FROM tenants_audit_log"
            " WHERE action = 'credit.granted'"
        )
        assert cursor.fetchall() == [("100",)]


def test_settles_and_burns_at_once_lose_nothing(poor: Tenant) -> None:
    for n in range(5):
        grant_credit(poor.organization_id, 100, f"gift-{n}")
    requests = [poor.held(10, 0) for _ in range(20)]

    usage: list[Callable[[], object]] = [
        partial(settle, [used(one, UsageCounts(10, 0, 0))]) for one in requests
    ]
    reads: list[Callable[[], object]] = [partial(credit_grants, poor.organization_id)] * 6

    at_once([*usage, *reads])

    assert sum(left(poor).values()) == 500 - 200
    assert poor.balance().posted_pico == 300
    assert reconcile() == []


grants = st.builds(
    Grant,
    age=st.integers(0, 10_000),
    category=st.sampled_from(GrantCategory),
    priority=st.integers(0, 3),
    remaining_pico=st.integers(0, 100),
    expires_at=st.none() | st.integers(-5, 5).map(lambda days: NOW + days * DAY),
)
sets = st.lists(grants, max_size=8, unique_by=lambda grant: grant.age)


@given(sets, st.lists(st.integers(0, 60), max_size=6))
def test_how_often_is_burned_cannot_be_told(
    given_grants: Sequence[Grant], parts: list[int]
) -> None:
    eager: Sequence[Grant] = given_grants
    owed = 0
    for part in parts:
        burned = burn(eager, owed + part)
        eager, owed = burned.grants, burned.owed_pico

    lazy = burn(given_grants, sum(parts))

    assert (lazy.grants, lazy.owed_pico) == (tuple(eager), owed)
    spent = sum(one.remaining_pico for one in given_grants) - sum(
        one.remaining_pico for one in lazy.grants
    )
    assert spent + lazy.owed_pico == sum(parts)


@given(sets, st.integers(0, 300))
def test_nothing_is_burned_before_what_goes_first(given_grants: list[Grant], owed: int) -> None:
    after = {grant.age: grant.remaining_pico for grant in burn(given_grants, owed).grants}
    ordered = burn_order(given_grants)

    touched = [grant for grant in ordered if after[grant.age] < grant.remaining_pico]
    for grant in ordered[: ordered.index(touched[-1])] if touched else []:
        assert after[grant.age] == 0


@given(sets, st.integers(0, 300))
def test_an_end_takes_no_more_than_is_free(given_grants: list[Grant], free: int) -> None:
    after = expire(given_grants, free, NOW)

    taken = [
        (before, before.remaining_pico - then.remaining_pico)
        for before, then in zip(given_grants, after, strict=True)
    ]
    due = sum(
        before.remaining_pico
        for before in given_grants
        if before.expires_at is not None and before.expires_at <= NOW
    )
    assert sum(amount for _, amount in taken) == min(free, due)
    assert all(
        before.expires_at is not None and before.expires_at <= NOW
        for before, amount in taken
        if amount
    )


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("grant"), st.integers(1, 50), st.sampled_from(GrantCategory), st.integers(0, 2)
        ),
        st.tuples(st.just("grant_ending"), st.integers(1, 50), st.integers(1, 3)),
        st.tuples(st.just("spend"), st.integers(1, 40)),
        st.tuples(st.just("read")),
        st.tuples(st.just("pass"), st.integers(1, 3)),
    ),
    min_size=3,
    max_size=12,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps)
def test_the_database_burns_as_the_model_does(
    django_database: object, told: list[tuple[object, ...]]
) -> None:
    tenant = make_tenant(credit_pico=0)
    model: list[Grant] = []
    owed, today = 0, NOW
    for step in told:
        match step:
            case ("grant", int(amount), GrantCategory() as category, int(priority)):
                model = [*burn(model, owed).grants, Grant(len(model), category, priority, amount)]
                owed = 0
                grant_credit(
                    tenant.organization_id,
                    amount,
                    f"{len(model) - 1}",
                    category=category,
                    priority=priority,
                )
            case ("grant_ending", int(amount), int(days)):
                ends = today + days * DAY
                model = [*burn(model, owed).grants, Grant(len(model), GIFT, 0, amount, ends)]
                owed = 0
                grant_credit(tenant.organization_id, amount, f"{len(model) - 1}", expires_at=ends)
            case ("spend", int(amount)):
                balance = sum(grant.remaining_pico for grant in model) - owed
                if amount <= balance:
                    spend(tenant, amount)
                    owed += amount
            case ("read",):
                credit_grants(tenant.organization_id)
            case ("pass", int(days)):
                today += days * DAY
                model = list(burn(model, owed).grants)
                owed = 0
                model = list(expire(model, sum(one.remaining_pico for one in model), today))
                tend_credit_of(tenant.organization_id, today)

    model = list(burn(model, owed).grants)
    assert left(tenant) == {str(grant.age): grant.remaining_pico for grant in model}
    assert tenant.balance().posted_pico == sum(grant.remaining_pico for grant in model)
