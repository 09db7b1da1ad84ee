"""Usage reports: exact in any bucket, by any grouping, with and without the rollups' help."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from billing.contracts import (
    BucketWidth,
    ServiceTier,
    UsageDimension,
    UsageQuery,
    UsageRow,
    UsageTooWide,
)
from billing.facade import roll_up, usage_page
from tenants.facade import create_project, issue_key
from tests.billing.cast import Tenant
from tests.billing.planted import Planted, planted
from tests.books import rows

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY = UsageQuery(NOON - timedelta(hours=12), NOON + timedelta(hours=12))


def leave() -> None:
    """Let the queue be."""


@pytest.fixture(params=[leave, roll_up], ids=["queued", "rolled up"])
def settled_down(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """What becomes of the queue before the report is read: no difference to anybody."""
    action: Callable[[], Any] = request.param
    return action


def report(tenant: Tenant, query: UsageQuery) -> list[UsageRow]:
    """All rows of all buckets."""
    page = usage_page(tenant.organization_id, query)
    assert page.next_at is None
    return [row for bucket in page.buckets for row in bucket.rows]


def requests(tenant: Tenant, query: UsageQuery) -> list[int]:
    """How many requests each bucket has."""
    page = usage_page(tenant.organization_id, query)
    return [sum(row.requests for row in bucket.rows) for bucket in page.buckets]


def test_an_event_on_the_boundary_belongs_to_the_bucket_that_begins(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    hours = replace(DAY, start_at=NOON, end_at=NOON + timedelta(hours=2), width=BucketWidth.HOUR)
    instants = [
        NOON - timedelta(microseconds=1),
        NOON,
        NOON + timedelta(hours=1),
        NOON + timedelta(hours=2),
    ]
    with planted(acme, [Planted(at) for at in instants]):
        settled_down()

        assert requests(acme, hours) == [1, 1]


def test_local_days_of_23_and_25_hours_lose_no_event(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    for month, day, hours in ((3, 29, 23), (10, 25, 25)):
        midnight = datetime(2026, month, day, tzinfo=zone).astimezone(UTC)
        every_half_hour = [
            Planted(midnight + timedelta(minutes=30 * n)) for n in range(-48, 2 * hours + 48)
        ]
        query = UsageQuery(
            datetime(2026, month, day - 1, tzinfo=zone),
            datetime(2026, month, day + 2, tzinfo=zone),
            time_zone="Europe/Amsterdam",
        )
        with planted(acme, every_half_hour):
            settled_down()

            assert requests(acme, query) == [48, 2 * hours, 48]


def test_a_zone_of_half_hours_cuts_hours_in_two(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    zone = ZoneInfo("Asia/Kolkata")
    midnight = datetime(2026, 5, 4, tzinfo=zone)
    instants = [midnight + timedelta(minutes=20 * n) for n in range(-3, 3)]
    query = UsageQuery(
        midnight - timedelta(days=1), midnight + timedelta(days=1), time_zone="Asia/Kolkata"
    )
    with planted(acme, [Planted(at) for at in instants]):
        settled_down()

        assert requests(acme, query) == [3, 3]


def test_a_span_may_begin_and_end_anywhere(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    instants = [NOON + timedelta(minutes=7 * n) for n in range(-60, 60)]
    start, end = NOON - timedelta(minutes=100), NOON + timedelta(minutes=133)
    inside = sum(start <= at < end for at in instants)
    with planted(acme, [Planted(at) for at in instants]):
        settled_down()

        for width in BucketWidth:
            query = UsageQuery(start, end, width, buckets_max=1440)
            assert sum(requests(acme, query)) == inside, width


def test_minutes_are_exact(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    query = UsageQuery(NOON, NOON + timedelta(minutes=3), BucketWidth.MINUTE)
    with planted(acme, [Planted(NOON + timedelta(seconds=s)) for s in (0, 59, 60, 179, 180)]):
        settled_down()

        assert requests(acme, query) == [2, 1, 1]


def test_groups_and_classes_add_up(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    events = [
        Planted(NOON, uncached=10, cached=5, output=2, model="a"),
        Planted(NOON, uncached=1, model="a", tier="batch", finish_reason="engine_lost"),
        Planted(NOON, uncached=7, model="b", finish_reason="cancelled"),
    ]
    with planted(acme, events):
        settled_down()
        by_model = report(acme, replace(DAY, group_by=frozenset({UsageDimension.MODEL})))
        by_tier = report(acme, replace(DAY, group_by=frozenset({UsageDimension.TIER})))
        [whole] = report(acme, DAY)

    assert [(row.model, row.requests, row.errors, row.charge_pico) for row in by_model] == [
        ("a", 2, 1, 18),
        ("b", 1, 0, 7),
    ]
    assert [(row.tier, row.model, row.requests) for row in by_tier] == [
        ("batch", None, 1),
        ("interactive", None, 2),
    ]
    assert (whole.uncached_input_tokens, whole.cached_input_tokens) == (18, 5)
    assert (whole.output_tokens, whole.cost_pico, whole.written_off_pico) == (2, 25, 0)


def test_tags_and_end_users_are_told_apart_and_the_rest_is_not_forgotten(
    acme: Tenant, settled_down: Callable[[], Any]
) -> None:
    events = [
        Planted(NOON, uncached=1, end_user="ann", tags={"team": "red"}),
        Planted(NOON, uncached=2, end_user="bob", tags={"team": "red"}),
        Planted(NOON, uncached=4, end_user="ann"),
        Planted(NOON + timedelta(minutes=90), uncached=8),
    ]
    cut = replace(DAY, start_at=DAY.start_at + timedelta(minutes=1))
    with planted(acme, events):
        settled_down()
        for query in (DAY, cut):
            by_user = report(acme, replace(query, tag="user", by_tag=True))
            by_team = report(acme, replace(query, tag="team", by_tag=True))
            anns = report(acme, replace(query, tag="user", tag_values=("ann",)))

            assert [(row.tag_value, row.charge_pico) for row in by_user] == [
                ("ann", 5),
                ("bob", 2),
                (None, 8),
            ]
            assert [(row.tag_value, row.requests) for row in by_team] == [("red", 2), (None, 2)]
            assert [row.charge_pico for row in anns] == [5]


def test_filters_keep_what_they_name(acme: Tenant, settled_down: Callable[[], Any]) -> None:
    other_project = create_project(acme.organization_id, "other")
    other_key = issue_key(acme.organization_id, other_project, "other").key_id
    events = [
        Planted(NOON, uncached=1, model="a"),
        Planted(NOON, uncached=2, model="b", tier="batch"),
        Planted(NOON, uncached=4, project_id=other_project, key_id=other_key),
        Planted(NOON, uncached=8, is_embedding=True),
    ]
    asked = {
        "models": (("a",), 1),
        "tiers": ((ServiceTier.BATCH,), 2),
        "project_ids": ((other_project,), 4),
        "key_ids": ((other_key,), 4),
        "is_embedding": (True, 8),
    }
    with planted(acme, events):
        settled_down()

        for field, (value, charge_pico) in asked.items():
            query = replace(DAY, **{field: value})  # type: ignore[arg-type] # one field of many
            assert [row.charge_pico for row in report(acme, query)] == [charge_pico], field


def test_pages_follow_each_other_without_a_gap(acme: Tenant) -> None:
    days = [NOON + timedelta(days=n) for n in range(10)]
    query = UsageQuery(NOON, NOON + timedelta(days=10), buckets_max=3)
    found: list[int] = []
    pages = 0
    with planted(acme, [Planted(at) for at in days]):
        roll_up()
        start: datetime | None = query.start_at
        while start is not None:
            page = usage_page(acme.organization_id, replace(query, start_at=start))
            found += [row.requests for bucket in page.buckets for row in bucket.rows]
            start, pages = page.next_at, pages + 1

    assert (sum(found), pages) == (10, 4)


def test_a_page_of_too_many_rows_ends_earlier(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.usage.report.ROWS_MAX", 3)
    events = [
        Planted(NOON + timedelta(days=day), model=f"m{number}")
        for day, models in enumerate((2, 2, 4))
        for number in range(models)
    ]
    by_model = replace(
        DAY, end_at=NOON + timedelta(days=3), group_by=frozenset({UsageDimension.MODEL})
    )
    with planted(acme, events):
        first = usage_page(acme.organization_id, by_model)
        assert first.next_at is not None
        second = usage_page(acme.organization_id, replace(by_model, start_at=first.next_at))
        assert second.next_at is not None
        with pytest.raises(UsageTooWide):
            usage_page(acme.organization_id, replace(by_model, start_at=second.next_at))

    assert [len(bucket.rows) for bucket in (*first.buckets, *second.buckets)] == [2, 2]


def test_nobody_sees_anothers_usage_and_all_views_make_the_whole(
    acme: Tenant, globex: Tenant, settled_down: Callable[[], Any]
) -> None:
    mine = [Planted(NOON, uncached=n, end_user="ann") for n in (1, 2)]
    theirs = [Planted(NOON, uncached=n, end_user="ann") for n in (10, 20)]
    with planted(acme, mine), planted(globex, theirs):
        settled_down()
        seen = {tenant: report(tenant, DAY)[0].charge_pico for tenant in (acme, globex)}
        tagged = {
            tenant: report(tenant, replace(DAY, tag="user", by_tag=True))[0].charge_pico
            for tenant in (acme, globex)
        }
        [(whole,)] = rows(
            "SELECT sum(charge_pico) FROM billing_usage_event"
            " WHERE occurred_at >= %s AND occurred_at < %s",
            DAY.start_at,
            DAY.end_at,
        )

    assert seen == tagged == {acme: 3, globex: 30}
    assert sum(seen.values()) == whole


def test_naming_anothers_project_shows_nothing(acme: Tenant, globex: Tenant) -> None:
    foreign: tuple[UUID, ...] = (globex.project_id,)
    with planted(acme, [Planted(NOON)]), planted(globex, [Planted(NOON)]):
        assert report(acme, replace(DAY, project_ids=foreign)) == []
