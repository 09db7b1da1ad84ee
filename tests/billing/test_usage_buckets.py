"""Buckets of a report: on the clock, on local days of 23 to 25 hours, with nothing between them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.contracts import BucketWidth
from billing.facade import previous_span
from billing.usage.buckets import bucket_bounds, cut_hours, cut_pieces

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
SECONDS = st.integers(946_684_800, 3_786_912_000)
ZONES = st.sampled_from(sorted(available_timezones() - {"localtime"}))


def days(start: datetime, end: datetime, zone: str) -> list[timedelta]:
    """How long each day of the span is."""
    bounds = bucket_bounds(start, end, BucketWidth.DAY, zone, 366)
    return [after - before for before, after in pairwise(bounds)]


@pytest.mark.parametrize(
    ("month", "day", "hours"), [(3, 28, 24), (3, 29, 23), (3, 30, 24), (10, 25, 25), (10, 26, 24)]
)
def test_a_local_day_has_the_hours_its_clock_shows(month: int, day: int, hours: int) -> None:
    midnight = datetime(2026, month, day, tzinfo=AMSTERDAM)
    next_midnight = datetime(2026, month, day + 1, tzinfo=AMSTERDAM)

    assert days(midnight, next_midnight, "Europe/Amsterdam") == [timedelta(hours=hours)]


def test_a_day_that_has_no_midnight_begins_when_its_clock_does() -> None:
    # In Beirut the clock went from 23:59:59 on the 28th to 01:00 on the 29th of March 2026.
    start = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Asia/Beirut"))
    bounds = bucket_bounds(start, start + timedelta(days=2), BucketWidth.DAY, "Asia/Beirut", 366)

    assert bounds[1] == datetime(2026, 3, 28, 22, tzinfo=UTC)


def test_only_the_first_and_the_last_bucket_are_cut() -> None:
    start = datetime(2026, 5, 1, 10, 20, tzinfo=UTC)
    bounds = bucket_bounds(start, start + timedelta(hours=2), BucketWidth.HOUR, "UTC", 100)

    assert [at.strftime("%H:%M") for at in bounds] == ["10:20", "11:00", "12:00", "12:20"]
    assert [at.hour for at in cut_hours(bounds)] == [10, 12]


def test_a_page_ends_after_its_buckets() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)

    bounds = bucket_bounds(start, start + timedelta(days=3), BucketWidth.MINUTE, "UTC", 60)

    assert len(bounds) == 61
    assert bounds[-1] == start + timedelta(hours=1)


def test_hours_that_are_cut_and_touch_are_read_as_one_piece() -> None:
    start = datetime(2026, 5, 1, 10, 20, tzinfo=UTC)
    minutes = bucket_bounds(start, start + timedelta(hours=3), BucketWidth.MINUTE, "UTC", 1440)
    hours = bucket_bounds(start, start + timedelta(hours=3), BucketWidth.HOUR, "UTC", 100)

    assert cut_pieces(minutes) == [(start, start + timedelta(hours=3))]
    assert [(a.strftime("%H:%M"), b.strftime("%H:%M")) for a, b in cut_pieces(hours)] == [
        ("10:20", "11:00"),
        ("13:00", "13:20"),
    ]


def test_an_empty_span_is_refused() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="empty"):
        bucket_bounds(start, start, BucketWidth.DAY, "UTC", 1)


@given(since=SECONDS, length=st.timedeltas(timedelta(seconds=1), timedelta(days=40)), zone=ZONES)
def test_buckets_cover_the_span_without_gap_or_overlap(
    since: int, length: timedelta, zone: str
) -> None:
    start = datetime.fromtimestamp(since, UTC)
    bounds = bucket_bounds(start, start + length, BucketWidth.DAY, zone, 366)

    assert (bounds[0], bounds[-1]) == (start, start + length)
    assert bounds == sorted(set(bounds))
    local = [at.astimezone(ZoneInfo(zone)) for at in bounds[1:-1]]
    assert len({at.date() for at in local}) == len(local)
    assert all(
        hour <= at < hour + timedelta(hours=1)
        for hour in cut_hours(bounds)
        for at in bounds
        if at.replace(minute=0, second=0, microsecond=0) == hour
    )


def local(month: int, day: int, hour: int = 0) -> datetime:
    """An instant of 2026 in Amsterdam, in UTC."""
    return datetime(2026, month, day, hour, tzinfo=AMSTERDAM).astimezone(UTC)


@pytest.mark.parametrize(
    ("span", "before"),
    [
        # Whole months, and days of which one has 23 hours.
        ((local(4, 1), local(5, 1)), (local(3, 1), local(4, 1))),
        ((local(1, 1), local(3, 1)), (datetime(2025, 10, 31, 23, tzinfo=UTC), local(1, 1))),
        ((local(3, 30), local(4, 6)), (local(3, 23), local(3, 30))),
        # The last day still runs.
        ((local(5, 4), local(5, 6, 12)), (local(5, 1), local(5, 3, 12))),
        # Off the clock.
        ((local(5, 4, 10), local(5, 4, 16)), (local(5, 4, 4), local(5, 4, 10))),
    ],
)
def test_a_span_is_compared_with_as_much_before_it(
    span: tuple[datetime, datetime], before: tuple[datetime, datetime]
) -> None:
    assert previous_span(*span, "Europe/Amsterdam") == before


def test_an_empty_span_is_compared_with_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        previous_span(local(5, 4), local(5, 4), "UTC")


@given(since=SECONDS, length=st.timedeltas(timedelta(seconds=1), timedelta(days=40)), zone=ZONES)
def test_what_is_compared_with_never_overlaps(since: int, length: timedelta, zone: str) -> None:
    start = datetime.fromtimestamp(since, UTC)

    earlier, later = previous_span(start, start + length, zone)

    assert earlier < later <= start
