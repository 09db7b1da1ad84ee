"""What an overview shows is what the reports and the events say, before and after the rollup."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from billing.contracts import (
    BucketWidth,
    CacheSaving,
    UsageQuery,
    UsageSum,
)
from billing.facade import cache_savings, roll_up, usage_overview, usage_page
from billing.usage.overview import projected_pico, spans_at
from tests.billing.cast import Tenant
from tests.billing.planted import Planted, planted

NOW = datetime(2026, 5, 14, 10, 20, 30, tzinfo=UTC)
ZONES = ("UTC", "Europe/Amsterdam", "Asia/Kolkata", "America/St_Johns")
STATEMENTS_MAX = 6


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
    query = UsageQuery(one.start_at, one.end_at + timedelta(microseconds=1), BucketWidth.SPAN)
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


@pytest.mark.parametrize("zone", ZONES)
def test_every_sum_is_that_of_the_report(
    acme: Tenant, settled_down: Callable[[], Any], zone: str
) -> None:
    with planted(acme, busy_months()):
        settled_down()
        seen = usage_overview(acme.organization_id, NOW, zone)
        for one in (seen.month, seen.today, seen.recent, seen.days[-1]):
            assert amounts(one) == told_by_the_report(acme, one), one

    assert seen.month.requests > seen.today.requests > 0
