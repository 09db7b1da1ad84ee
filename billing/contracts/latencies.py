"""How long requests waited for their first token."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.prices import ServiceTier
from billing.contracts.usage import BucketWidth, UsageDimension


@dataclass(frozen=True, slots=True)
class FirstTokenTimes:
    """Queueing and prefill of some requests, as percentiles.

    `requests` are those that had a first token and whose times the engine told: what failed, what
    was cancelled before it, and embeddings do not count. The percentiles are None for none; they
    are within 10 % of the true ones, and of what took more than three minutes told as that.
    """

    requests: int
    p50_ms: int | None
    p95_ms: int | None


@dataclass(frozen=True, slots=True)
class LatencyQuery:
    """What first-token times are asked for: events from `start_at` to before `end_at`, in buckets.

    As UsageQuery, but they are not told apart by key, nor by tag: `group_by` takes PROJECT, MODEL
    and TIER. Empty filters let everything pass.
    """

    start_at: datetime
    end_at: datetime
    width: BucketWidth = BucketWidth.DAY
    time_zone: str = "UTC"
    group_by: frozenset[UsageDimension] = frozenset()
    project_ids: tuple[UUID, ...] = ()
    models: tuple[str, ...] = ()
    """As served."""
    tiers: tuple[ServiceTier, ...] = ()
    buckets_max: int = 31


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One group's first-token times in one bucket; what is not grouped by is None."""

    project_id: UUID | None
    model: str | None
    tier: str | None
    times: FirstTokenTimes


@dataclass(frozen=True, slots=True)
class LatencyBucket:
    """The groups of one span of time; an empty bucket has none."""

    start_at: datetime
    end_at: datetime
    rows: tuple[LatencyRow, ...]
