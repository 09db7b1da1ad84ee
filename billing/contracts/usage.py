"""Usage as it is asked for: buckets of time, and lists of requests."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.counts import UsageCounts
from billing.contracts.errors import BillingError
from billing.contracts.prices import ServiceTier
from billing.contracts.requests import UsageSource


class BucketWidth(enum.StrEnum):
    """How long each bucket of a report is."""

    MINUTE = "1m"
    HOUR = "1h"
    DAY = "1d"
    SPAN = "all"
    """One bucket for all of it."""


class UsageDimension(enum.StrEnum):
    """What a report may tell apart, beside the value of one tag."""

    PROJECT = "project_id"
    KEY = "api_key_id"
    MODEL = "model"
    TIER = "tier"


@dataclass(frozen=True, slots=True)
class BillingBacklogs:
    """What waits for workers, of all tenants together."""

    rollup_events: int
    """Usage events that no rollup has counted yet."""
    stripe_late_hours: int
    """Age of the oldest hour that waits to be told to Stripe; 0 for none."""
    stripe_inbox_lag_s: int
    """How long the oldest of Stripe's messages has waited; 0 for none."""
    stripe_rejected: int
    """Messages in the inbox that Stripe has not signed: whoever put them there may write to it."""
    stripe_unapplied: int
    """Signed messages that make no sense or could not be applied."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What a report is asked for: events from `start_at` to before `end_at`, in buckets.

    Days are those of `time_zone`. Empty filters let everything pass. `tag` is the one tag to look
    at, `user` being the end user: `by_tag` groups by its values, `tag_values` keeps only these.
    """

    start_at: datetime
    end_at: datetime
    width: BucketWidth = BucketWidth.DAY
    time_zone: str = "UTC"
    group_by: frozenset[UsageDimension] = frozenset()
    tag: str | None = None
    by_tag: bool = False
    tag_values: tuple[str, ...] = ()
    project_ids: tuple[UUID, ...] = ()
    key_ids: tuple[UUID, ...] = ()
    models: tuple[str, ...] = ()
    tiers: tuple[ServiceTier, ...] = ()
    is_embedding: bool | None = None
    buckets_max: int = 31


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one group used in one bucket; what the report does not group by is None."""

    project_id: UUID | None
    key_id: UUID | None
    model: str | None
    tier: str | None
    tag_value: str | None
    """None also for what does not carry the tag."""
    currency: str
    requests: int
    errors: int
    uncached_input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_pico: int
    charge_pico: int

    @property
    def written_off_pico(self) -> int:
        """What the requests cost beyond what they were charged."""
        return self.cost_pico - self.charge_pico


@dataclass(frozen=True, slots=True)
class UsageBucket:
    """The groups of one span of time; an empty bucket has none."""

    start_at: datetime
    end_at: datetime
    rows: tuple[UsageRow, ...]


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Consecutive buckets; `next_at` is where the next page starts, None after the last."""

    buckets: tuple[UsageBucket, ...]
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests a list shows; what is None lets everything pass."""

    start_at: datetime | None = None
    end_at: datetime | None = None
    project_id: UUID | None = None
    key_id: UUID | None = None
    model: str | None = None
    """As served."""
    tier: ServiceTier | None = None
    finish_reason: str | None = None
    errors_only: bool = False
    tag: str | None = None
    """The one tag to look at, `user` being the end user."""
    tag_value: str = ""


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """One settled request, without its prices and ledger entries: those are on its receipt."""

    request_id: UUID
    occurred_at: datetime
    held_at: datetime
    project_id: UUID
    key_id: UUID
    tier: ServiceTier
    currency: str
    model_asked: str
    model_served: str
    counts: UsageCounts
    cost_pico: int
    charge_pico: int
    finish_reason: str
    source: UsageSource
    queue_ms: int
    prefill_ms: int
    decode_ms: int
    end_user: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Requests in order; `goes_on_after` names where a search that looked at enough stopped."""

    requests: tuple[RequestSummary, ...]
    goes_on_after: UUID | None


class UsageTooWide(BillingError):
    """A report of more rows than anybody reads: group by less, or filter more."""
