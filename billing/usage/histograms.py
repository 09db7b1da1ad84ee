"""Percentiles from counts of durations in fixed buckets, added up at will. Pure.

A bucket for each millisecond below ten, then each a fifth wider than the one before it, up to three
minutes: a percentile is within 10 % of the true one. SQL counts by the same bounds
(sql/0016_model_hours.sql), which never change: counts by other bounds would not add up. Called by
the reports beside it.
"""

from collections.abc import Sequence
from itertools import accumulate

EXACT_BELOW_MS = 10
BUCKETS = 64
BOUNDS_MS: tuple[int, ...] = (
    *range(2, EXACT_BELOW_MS + 1),
    *(-(-EXACT_BELOW_MS * 6**n // 5**n) for n in range(1, BUCKETS - EXACT_BELOW_MS + 1)),
)
"""Where each bucket but the first begins."""


def percentile_ms(counts: Sequence[int], percent: int) -> int | None:
    """The duration that `percent` of all are not beyond (nearest rank); None of nothing.

    Told as where the last bucket begins when it lies in there. Raises ValueError for other than
    BUCKETS counts, and for a percentage other than 1 to 100.
    """
    if len(counts) != BUCKETS or not 1 <= percent <= 100:
        raise ValueError(f"a percentile of 1 to 100 takes {BUCKETS} counts")
    total = sum(counts)
    if total == 0:
        return None
    rank = -(-total * percent // 100)
    place = next(n for n, reached in enumerate(accumulate(counts)) if reached >= rank)
    return _told_ms(place)


def _told_ms(place: int) -> int:
    """Of a bucket's durations, the one with the least relative error to any: their harmonic mean,
    rounded."""
    shortest = BOUNDS_MS[place - 1] if place else 1
    if place == len(BOUNDS_MS):
        return shortest
    longest = BOUNDS_MS[place] - 1
    both = shortest + longest
    return (4 * shortest * longest + both) // (2 * both)
