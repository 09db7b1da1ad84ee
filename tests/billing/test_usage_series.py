"""Series of a chart: the biggest by themselves, the rest together, and nothing lost."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.contracts import UsageBucket, UsageDimension, UsageRow, UsageSeries
from billing.facade import class_series, top_series

START = datetime(2026, 5, 4, tzinfo=UTC)
NAMES = st.sampled_from([*"abcdefghijkl"])
BUCKETS = st.lists(st.dictionaries(NAMES, st.integers(0, 1000), max_size=12), max_size=6)


def used(
    model: str | None = None,
    tag_value: str | None = None,
    tier: str | None = None,
    requests: int = 1,
) -> UsageRow:
    """What a group used: two tokens of each class a request."""
    twice = 2 * requests
    return UsageRow(
        None, None, model, tier, tag_value, "USD", requests, 0, twice, twice, twice, 0, 0
    )


def buckets(*rows: list[UsageRow]) -> list[UsageBucket]:
    """Consecutive days."""
    days = [START + timedelta(days=n) for n in range(len(rows) + 1)]
    return [UsageBucket(days[n], days[n + 1], tuple(some)) for n, some in enumerate(rows)]


def requests(row: UsageRow) -> int:
    """What the charts below are of."""
    return row.requests


@given(days=BUCKETS, series_max=st.integers(1, 7))
def test_series_add_up_to_their_report(days: list[dict[str, int]], series_max: int) -> None:
    report = buckets(*([used(name, requests=n) for name, n in day.items()] for day in days))

    series = top_series(report, UsageDimension.MODEL, requests, series_max)

    assert len(series) <= series_max
    assert [sum(values) for values in zip(*(one.values for one in series), strict=True)] == [
        sum(day.values()) for day in days if series
    ]
    own = [one.total for one in series if not one.is_rest]
    assert own == sorted(own, reverse=True)


def test_of_more_groups_than_series_the_last_is_the_rest() -> None:
    report = buckets([used("a", requests=3), used("b", requests=2), used("c")], [used("d")])

    series = top_series(report, UsageDimension.MODEL, requests, 3)

    assert series == (
        UsageSeries("a", False, (3, 0)),
        UsageSeries("b", False, (2, 0)),
        UsageSeries(None, True, (1, 1)),
    )


def test_as_many_groups_as_series_have_no_rest() -> None:
    report = buckets([used("a"), used("b")])

    assert [one.is_rest for one in top_series(report, UsageDimension.MODEL, requests, 2)] == [
        False,
        False,
    ]


def test_what_carries_no_tag_is_a_series_like_others() -> None:
    report = buckets([used(tag_value="red"), used(tag_value=None, requests=2)])

    assert [(one.name, one.is_rest, one.total) for one in top_series(report, None, requests)] == [
        (None, False, 2),
        ("red", False, 1),
    ]


def test_a_chart_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        top_series([], None, requests, 0)


def test_classes_are_always_all_of_them_and_batch_is_one() -> None:
    report = buckets([used(tier="interactive"), used(tier="batch", requests=5)], [])

    assert [(one.name, one.values) for one in class_series(report)] == [
        ("uncached_input", (2, 0)),
        ("cached_input", (2, 0)),
        ("output", (2, 0)),
        ("batch", (30, 0)),
    ]
    with pytest.raises(ValueError, match="tier"):
        class_series(buckets([used("a")]))
