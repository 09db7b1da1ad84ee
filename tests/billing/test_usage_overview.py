"""What an overview shows is what the reports and the events say, before and after the rollup."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from billing.contracts import (
    BucketWidth,
    CacheSaving,
    FirstTokenTimes,
    ServiceTier,
    UsageQuery,
    UsageSum,
)
from billing.facade import cache_savings, roll_up, usage_overview, usage_page
from billing.usage.overview import DAYS, projected_pico, spans_at
from tests.billing.cast import Tenant
from tests.billing.planted import Planted, planted

NOW = datetime(2026, 5, 14, 10, 20, 30, tzinfo=UTC)
ZONES = ("UTC", "Europe/Amsterdam", "Asia/Kolkata", "America/St_Johns")
STATEMENTS_MAX = 6
JUST_AFTER = timedelta(microseconds=1)
"""An overview holds what happened at its very moment, too."""


def leave() -> None:
    """Let the queue be."""


@pytest.fixture(params=[leave, roll_up], ids=["queued", "rolled up"])
def settled_down(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """What becomes of the queue before anybody looks: no difference to anybody."""
    action: Callable[[], Any] = request.param
    return action


def busy_months() -> list[Planted]:
    """Events every 5 hours and 7 minutes of the 70 days before NOW, none like another."""
    step = timedelta(hours=5, minutes=7)
    return [
        Planted(
            NOW - n * step,
            uncached=1 + n,
            cached=n % 7,
            output=n % 5,
            model="ab"[n % 2],
            finish_reason="engine_lost" if n % 11 == 0 else "stop",
            queue_ms=n,
            prefill_ms=100 + n,
            input_micros=3,
        )
        for n in range(70 * 24 // 5)
    ]


def told_by_the_report(tenant: Tenant, one: UsageSum) -> tuple[int, ...]:
    """The same span, as the API and its file have it."""
    end_at = one.end_at + JUST_AFTER if one.end_at == NOW else one.end_at
    query = UsageQuery(one.start_at, end_at, BucketWidth.SPAN)
    [bucket] = usage_page(tenant.organization_id, query).buckets
    return tuple(
        sum(getattr(row, name) for row in bucket.rows)
        for name in (
            "requests",
            "errors",
            "uncached_input_tokens",
            "cached_input_tokens",
            "output_tokens",
            "cost_pico",
            "charge_pico",
        )
    )


def amounts(one: UsageSum) -> tuple[int, ...]:
    """What a report tells too."""
    return (
        one.requests,
        one.errors,
        one.uncached_input_tokens,
        one.cached_input_tokens,
        one.output_tokens,
        one.cost_pico,
        one.charge_pico,
    )


def saved_pico(events: list[Planted], one: UsageSum) -> int:
    """What caching saved in a span: each cached token costs two pico-units less."""
    return sum(
        event.cached * 2
        for event in events
        if one.start_at <= event.occurred_at < one.end_at or event.occurred_at == one.end_at == NOW
    )


@pytest.mark.parametrize("zone", ZONES)
def test_every_sum_is_that_of_the_report(
    acme: Tenant, settled_down: Callable[[], Any], zone: str
) -> None:
    events = busy_months()
    with planted(acme, events):
        settled_down()
        seen = usage_overview(acme.organization_id, NOW, zone)
        for one in (seen.month, seen.last_month, seen.today, seen.recent, *seen.days):
            assert amounts(one) == told_by_the_report(acme, one), one
            assert one.cache_saved_pico == saved_pico(events, one), one

    assert seen.month.requests > seen.today.requests > 0
    assert len(seen.days) == DAYS


def test_nobody_sees_anothers_and_an_empty_house_is_zero(acme: Tenant, globex: Tenant) -> None:
    with planted(globex, busy_months()):
        roll_up()
        seen = usage_overview(acme.organization_id, NOW, "UTC")
        savings = cache_savings(acme.organization_id, NOW - timedelta(days=70), NOW)

    assert {amounts(one) for one in (seen.month, seen.last_month, *seen.days)} == {(0,) * 7}
    assert (seen.first_token, seen.projected_month_pico, savings) == (
        FirstTokenTimes(0, None, None),
        None,
        (),
    )


def test_first_tokens_are_those_that_somebody_waited_for(acme: Tenant) -> None:
    waits_ms = {ServiceTier.INTERACTIVE: 100, ServiceTier.BATCH: 60_000}
    at = NOW - timedelta(hours=3)
    both = [Planted(at, tier=tier.value, output=1, queue_ms=ms) for tier, ms in waits_ms.items()]
    with planted(acme, both):
        seen = usage_overview(acme.organization_id, NOW, "UTC").first_token

    assert seen.requests == 1
    assert seen.p95_ms is not None
    assert seen.p95_ms <= 110


def test_an_overview_takes_few_statements(acme: Tenant) -> None:
    with CaptureQueriesContext(connections["default"]) as captured:
        usage_overview(acme.organization_id, NOW, "Europe/Amsterdam")

    assert len(captured) <= STATEMENTS_MAX, captured.captured_queries


def test_spans_are_of_the_local_clock() -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    spans = spans_at(datetime(2026, 3, 31, 22, 30, tzinfo=UTC), "Europe/Amsterdam")

    assert spans.month[0] == spans.today[0] == datetime(2026, 4, 1, tzinfo=zone)
    assert spans.last_month == (
        datetime(2026, 3, 1, tzinfo=zone),
        datetime(2026, 3, 1, 0, 30, tzinfo=zone),
    )
    assert spans.month_ends_at == datetime(2026, 5, 1, tzinfo=zone)
    assert [start.astimezone(zone).hour for start, _ in spans.days] == [0] * DAYS
    assert spans.days[-1] == spans.today
    assert all(end == start for (_, end), (start, _) in pairwise(spans.days))


def test_a_longer_month_is_compared_with_all_of_a_shorter() -> None:
    spans = spans_at(datetime(2026, 3, 31, 12, tzinfo=UTC), "UTC")

    assert spans.last_month == (
        datetime(2026, 2, 1, tzinfo=UTC),
        datetime(2026, 3, 1, tzinfo=UTC),
    )


def day(number: int, charge_pico: int) -> UsageSum:
    """A day with a request, unless it cost nothing."""
    start = datetime(2026, 5, number, tzinfo=UTC)
    requests = 1 if charge_pico else 0
    return UsageSum(
        start, start + timedelta(days=1), requests, 0, 0, 0, 0, charge_pico, charge_pico, 0
    )


@pytest.mark.parametrize(
    ("charges", "projected"),
    [((10, 20, 30), 100 + 20 * 5), ((0, 20, 30), 100 + 25 * 5), ((0, 20, 0), 150), ((0,), None)],
)
def test_a_month_is_projected_by_the_pace_of_whole_days(
    charges: tuple[int, ...], projected: int | None
) -> None:
    days = [day(1 + n, charge) for n, charge in enumerate(charges)]

    assert projected_pico(100, days, timedelta(days=5)) == projected


def test_a_months_projection_is_of_its_last_seven_whole_days(acme: Tenant) -> None:
    """Ten a day; today's do not make the pace."""
    daily = [Planted(NOW - timedelta(days=n), uncached=10) for n in range(1, 14)]
    with planted(acme, [*daily, Planted(NOW, uncached=1000)]):
        seen = usage_overview(acme.organization_id, NOW, "UTC")

    rest = datetime(2026, 6, 1, tzinfo=UTC) - NOW
    assert seen.month.charge_pico == 1130
    assert seen.projected_month_pico == 1130 + 10 * rest // timedelta(days=1)


def test_savings_are_of_each_model_at_each_events_own_prices(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    hour = timedelta(hours=1)
    events = [
        Planted(NOW - hour, cached=10, model="a", input_micros=5),
        Planted(NOW, cached=10, model="a", input_micros=3),
        Planted(NOW, cached=7, model="b", input_micros=1),
        Planted(NOW - 3 * hour, cached=100, model="a", input_micros=5),
        Planted(NOW, cached=1, model="c", input_micros=0, finish_reason="engine_lost"),
    ]
    span = (NOW - 2 * hour, NOW + hour)
    with planted(acme, events):
        settled_down()
        all_models = cache_savings(acme.organization_id, *span)
        of_b = cache_savings(acme.organization_id, *span, models=("b",))
        of_batch = cache_savings(acme.organization_id, *span, tiers=(ServiceTier.BATCH,))

    assert all_models == (
        CacheSaving("a", "USD", 22, 20, 10 * 4 + 10 * 2),
        CacheSaving("b", "USD", 8, 7, 0),
        CacheSaving("c", "USD", 2, 1, -1),
    )
    assert of_b == all_models[1:2]
    assert of_batch == ()
