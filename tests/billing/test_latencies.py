"""First-token times: of what had a first token, in any bucket, by any group, queued or counted."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.contracts import (
    BucketWidth,
    FirstTokenTimes,
    LatencyQuery,
    LatencyRow,
    ServiceTier,
    UsageDimension,
)
from billing.facade import first_token_latencies, roll_up, usage_overview
from tests.billing.cast import Tenant
from tests.billing.planted import Planted, planted

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY = LatencyQuery(NOON - timedelta(hours=12), NOON + timedelta(hours=12))


def leave() -> None:
    """Let the queue be."""


@pytest.fixture(params=[leave, roll_up], ids=["queued", "rolled up"])
def settled_down(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """What becomes of the queue before anybody looks: no difference to anybody."""
    action: Callable[[], Any] = request.param
    return action


def told(at: datetime, prefill_ms: int, **others: Any) -> Planted:
    """A request with an output whose engine told its times."""
    return Planted(at, **{"output": 1, "queue_ms": 0, "prefill_ms": prefill_ms, **others})


def rows(tenant: Tenant, query: LatencyQuery) -> list[LatencyRow]:
    """Of all buckets."""
    buckets = first_token_latencies(tenant.organization_id, query)
    return [row for bucket in buckets for row in bucket.rows]


def test_queueing_and_prefill_are_one_wait(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    waits = [told(NOON, 5, queue_ms=ms - 5) for ms in range(6, 106)]
    with planted(acme, waits):
        settled_down()
        [row] = rows(acme, DAY)

    assert row.times.requests == 100
    assert row.times.p50_ms is not None and abs(row.times.p50_ms - 55) <= 5
    assert row.times.p95_ms is not None and abs(row.times.p95_ms - 100) <= 10


def test_only_what_had_a_first_token_counts(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    events = [
        told(NOON, 7),
        told(NOON, 8, finish_reason="cancelled"),
        told(NOON, 1000, finish_reason="engine_lost"),
        told(NOON, 1000, finish_reason="cancelled", output=0),
        told(NOON, 1000, is_embedding=True, output=0),
        told(NOON, 0),
    ]
    with planted(acme, events):
        settled_down()

        assert [row.times for row in rows(acme, DAY)] == [FirstTokenTimes(2, 7, 8)]


def test_buckets_on_and_off_the_clock_hold_what_lies_in_them(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    events = [told(NOON + timedelta(minutes=10 * n), 1 + n) for n in range(9)]
    hours = replace(DAY, start_at=NOON, end_at=NOON + timedelta(hours=3), width=BucketWidth.HOUR)
    cut = replace(hours, start_at=NOON + timedelta(minutes=15), end_at=NOON + timedelta(minutes=75))
    span = replace(cut, width=BucketWidth.SPAN)
    with planted(acme, events):
        settled_down()
        by_hour = first_token_latencies(acme.organization_id, hours)
        by_cut_hour = first_token_latencies(acme.organization_id, cut)
        [whole] = rows(acme, span)

    assert [[row.times for row in bucket.rows] for bucket in by_hour] == [
        [FirstTokenTimes(6, 3, 6)],
        [FirstTokenTimes(3, 8, 9)],
        [],
    ]
    assert [bucket.rows[0].times.requests for bucket in by_cut_hour] == [4, 2]
    assert whole.times == FirstTokenTimes(6, 5, 8)


def test_groups_and_filters(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    events = [
        told(NOON, 2, model="a"),
        told(NOON, 4, model="a", tier="batch"),
        told(NOON, 8, model="b"),
    ]
    by_model = replace(DAY, group_by=frozenset({UsageDimension.MODEL}))
    by_all = replace(
        DAY,
        group_by=frozenset({UsageDimension.PROJECT, UsageDimension.MODEL, UsageDimension.TIER}),
    )
    with planted(acme, events):
        settled_down()
        models = {row.model: row.times for row in rows(acme, by_model)}
        all_groups = rows(acme, by_all)
        batch = rows(acme, replace(DAY, tiers=(ServiceTier.BATCH,)))
        of_b = rows(acme, replace(DAY, models=("b",), project_ids=(acme.project_id,)))

    assert models == {"a": FirstTokenTimes(2, 2, 4), "b": FirstTokenTimes(1, 8, 8)}
    assert [(row.project_id, row.model, row.tier) for row in all_groups] == [
        (acme.project_id, "a", "batch"),
        (acme.project_id, "a", "interactive"),
        (acme.project_id, "b", "interactive"),
    ]
    assert [row.times.p50_ms for row in batch] == [4]
    assert [row.times.p50_ms for row in of_b] == [8]


def test_rollups_and_the_queue_are_added_up(acme: Tenant) -> None:
    with planted(acme, [told(NOON, ms) for ms in (1, 2, 3)]):
        roll_up()
        with planted(acme, [told(NOON, ms) for ms in (4, 5)]):
            before = rows(acme, DAY)
            roll_up()
            after = rows(acme, DAY)

    assert before == after
    assert [row.times for row in after] == [FirstTokenTimes(5, 3, 5)]


def test_an_overview_tells_those_of_the_last_hours(acme: Tenant) -> None:
    now = NOON + timedelta(minutes=20)
    events = [
        told(now, 5),
        told(NOON - timedelta(hours=23), 9),
        told(NOON - timedelta(hours=24), 8),
    ]
    with planted(acme, events):
        roll_up()
        seen = usage_overview(acme.organization_id, now, "UTC")

    assert seen.recent.requests == 2
    assert seen.first_token == FirstTokenTimes(2, 5, 9)


def test_nobody_sees_anothers(acme: Tenant, globex: Tenant) -> None:
    with planted(globex, [told(NOON, 5)]):
        roll_up()

        assert rows(acme, DAY) == []
        assert rows(acme, replace(DAY, project_ids=(globex.project_id,))) == []


def test_keys_are_not_told_apart(acme: Tenant) -> None:
    with pytest.raises(ValueError, match="project, model and tier"):
        first_token_latencies(
            acme.organization_id, replace(DAY, group_by=frozenset({UsageDimension.KEY}))
        )
