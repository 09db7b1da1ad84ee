"""Series of a chart from the buckets of a usage report. Pure.

What is not shown by itself is in the rest, so that the series of a chart add up to its report.
Called by the console.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from uuid import UUID

from billing.contracts import (
    ServiceTier,
    UsageBucket,
    UsageDimension,
    UsageRow,
    UsageSeries,
)

SERIES_MAX = 7
BATCH = ServiceTier.BATCH.value
CLASSES: dict[str, Callable[[UsageRow], int]] = {
    "uncached_input": lambda row: row.uncached_input_tokens * (row.tier != BATCH),
    "cached_input": lambda row: row.cached_input_tokens * (row.tier != BATCH),
    "output": lambda row: row.output_tokens * (row.tier != BATCH),
    "batch": lambda row: _tokens(row) * (row.tier == BATCH),
}
"""The classes of tokens, in the order of their layers; batch is all of that tier's."""
NAMES: dict[UsageDimension | None, Callable[[UsageRow], UUID | str | None]] = {
    UsageDimension.PROJECT: lambda row: row.project_id,
    UsageDimension.KEY: lambda row: row.key_id,
    UsageDimension.MODEL: lambda row: row.model,
    UsageDimension.TIER: lambda row: row.tier,
    None: lambda row: row.tag_value,
}


def top_series(
    buckets: Sequence[UsageBucket],
    by: UsageDimension | None,
    measure: Callable[[UsageRow], int],
    series_max: int = SERIES_MAX,
) -> tuple[UsageSeries, ...]:
    """The groups with most of what `measure` takes from a row, the biggest first.

    `by` is what the report groups by, None being its tag. Of more than `series_max` groups the last
    series is the rest of them. Raises ValueError for a `series_max` below 1.
    """
    if series_max < 1:
        raise ValueError("a chart has at least one series")
    name_of = NAMES[by]
    values: dict[UUID | str | None, list[int]] = defaultdict(lambda: [0] * len(buckets))
    for place, bucket in enumerate(buckets):
        for row in bucket.rows:
            values[name_of(row)][place] += measure(row)
    biggest = sorted(values, key=lambda name: (-sum(values[name]), name is None, str(name)))
    shown = biggest if len(biggest) <= series_max else biggest[: series_max - 1]
    series = [UsageSeries(name, False, tuple(values[name])) for name in shown]
    if rest := biggest[len(shown) :]:
        summed = map(sum, zip(*(values[name] for name in rest), strict=True))
        series.append(UsageSeries(None, True, tuple(summed)))
    return tuple(series)


def class_series(buckets: Sequence[UsageBucket]) -> tuple[UsageSeries, ...]:
    """Tokens by class, always all of CLASSES. Raises ValueError where rows tell no tier."""
    if any(row.tier is None for bucket in buckets for row in bucket.rows):
        raise ValueError("classes of tokens want a report grouped by tier")
    return tuple(
        UsageSeries(name, False, tuple(sum(map(tokens_of, bucket.rows)) for bucket in buckets))
        for name, tokens_of in CLASSES.items()
    )


def _tokens(row: UsageRow) -> int:
    return row.uncached_input_tokens + row.cached_input_tokens + row.output_tokens
