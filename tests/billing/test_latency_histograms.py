"""Percentiles of counted durations are near the true ones, and SQL counts by the same buckets."""

from bisect import bisect_right
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.usage.histograms import BOUNDS_MS, BUCKETS, percentile_ms
from tests.books import rows

TOP_MS = BOUNDS_MS[-1]
DURATIONS = st.lists(st.integers(1, TOP_MS - 1), min_size=1, max_size=200)
PERCENTS = st.sampled_from([1, 50, 90, 95, 99, 100])


def counted(durations_ms: list[int]) -> list[int]:
    """The histogram of some durations."""
    places = Counter(bisect_right(BOUNDS_MS, duration) for duration in durations_ms)
    return [places[n] for n in range(BUCKETS)]


def nearest_rank(durations_ms: list[int], percent: int) -> int:
    """The true percentile: the least duration that so many per cent are not beyond."""
    return sorted(durations_ms)[-(-len(durations_ms) * percent // 100) - 1]


@given(durations=DURATIONS, percent=PERCENTS)
def test_a_percentile_is_within_a_tenth_of_the_true_one(durations: list[int], percent: int) -> None:
    told, true = percentile_ms(counted(durations), percent), nearest_rank(durations, percent)

    assert told is not None
    assert 10 * abs(told - true) <= true


def test_every_duration_is_told_within_a_tenth() -> None:
    for true in range(1, TOP_MS):
        told = percentile_ms(counted([true]), 50)
        assert told is not None and 10 * abs(told - true) <= true, true


@given(some=DURATIONS, more=DURATIONS, percent=PERCENTS)
def test_histograms_add_up(some: list[int], more: list[int], percent: int) -> None:
    added = [a + b for a, b in zip(counted(some), counted(more), strict=True)]

    assert percentile_ms(added, percent) == percentile_ms(counted(some + more), percent)


@given(durations=DURATIONS)
def test_percentiles_never_fall(durations: list[int]) -> None:
    told = [percentile_ms(counted(durations), percent) for percent in (1, 50, 95, 100)]

    assert told == sorted(told, key=lambda ms: ms or 0)


def test_nothing_has_no_percentile() -> None:
    assert percentile_ms([0] * BUCKETS, 95) is None


def test_what_took_longer_than_the_last_bound_is_told_as_that() -> None:
    assert percentile_ms(counted([TOP_MS, 10 * TOP_MS]), 95) == TOP_MS == 188_707


@pytest.mark.parametrize(("counts", "percent"), [(63, 50), (64, 0), (64, 101)])
def test_what_is_no_histogram_or_no_percentage_is_refused(counts: int, percent: int) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile_ms([1] * counts, percent)


def test_sql_counts_by_the_same_bounds(django_database: object) -> None:
    around = sorted({ms + offset for ms in (1, *BOUNDS_MS, 10**9) for offset in (-1, 0, 1)})

    placed = rows("SELECT ms, billing_latency_place(ms) FROM unnest(%s::bigint[]) AS ms", around)

    assert placed == [(ms, bisect_right(BOUNDS_MS, ms) + 1) for ms in around]
