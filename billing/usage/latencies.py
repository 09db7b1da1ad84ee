"""Times to the first token in buckets of time: percentiles of counts that hours keep.

Whole hours cost the same however many requests they had. Reads only the tenant's own rows. Called
by the console.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from billing.contracts import (
    FirstTokenTimes,
    LatencyBucket,
    LatencyQuery,
    LatencyRow,
    UsageDimension,
)
from billing.usage.buckets import bucket_bounds
from billing.usage.histograms import BUCKETS, percentile_ms
from billing.usage.model_hours import Asked, first_token_counts
from billing.usage.report import BUCKETS_MAX, COLUMNS

TOLD_APART = (UsageDimension.PROJECT, UsageDimension.MODEL, UsageDimension.TIER)


def first_token_latencies(organization_id: UUID, query: LatencyQuery) -> tuple[LatencyBucket, ...]:
    """The span's first `buckets_max` buckets, as many as a usage report has at the most.

    Every bucket is there, also the empty ones. Raises ValueError for an empty span and for other
    groups than LatencyQuery takes, UsageTooWide for more groups than anybody reads.
    """
    if not query.group_by <= set(TOLD_APART):
        raise ValueError("first-token times are told apart by project, model and tier alone")
    buckets_max = min(query.buckets_max, BUCKETS_MAX[query.width])
    bounds = bucket_bounds(query.start_at, query.end_at, query.width, query.time_zone, buckets_max)
    grouped = [dimension for dimension in TOLD_APART if dimension in query.group_by]
    asked = Asked(
        bounds,
        tuple(COLUMNS[dimension] for dimension in grouped),
        query.project_ids,
        query.models,
        query.tiers,
    )
    found: dict[int, list[LatencyRow]] = defaultdict(list)
    counted = first_token_counts(organization_id, asked)
    for (bucket, values), counts in sorted(counted.items(), key=lambda one: str(one[0][1])):
        found[bucket].append(_row(dict(zip(grouped, values, strict=True)), counts))
    return tuple(
        LatencyBucket(bounds[i], bounds[i + 1], tuple(found[i])) for i in range(len(bounds) - 1)
    )


def times_of(counts: Sequence[int]) -> FirstTokenTimes:
    """What a histogram tells; () is an empty one."""
    counts = counts or [0] * BUCKETS
    return FirstTokenTimes(sum(counts), percentile_ms(counts, 50), percentile_ms(counts, 95))


def _row(group: dict[UsageDimension, Any], counts: Sequence[int]) -> LatencyRow:
    return LatencyRow(
        project_id=group.get(UsageDimension.PROJECT),
        model=group.get(UsageDimension.MODEL),
        tier=group.get(UsageDimension.TIER),
        times=times_of(counts),
    )
