"""Usage at a glance: what spans came to, series of a chart, what caching saved."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.latencies import FirstTokenTimes
from billing.contracts.prices import ServiceTier


@dataclass(frozen=True, slots=True)
class UsageSum:
    """All that an organization used from `start_at` to before `end_at`, to the last unit."""

    start_at: datetime
    end_at: datetime
    requests: int
    errors: int
    uncached_input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_pico: int
    charge_pico: int
    """What was spent: as on usage reports, before what the operator corrects later."""
    cache_saved_pico: int
    """What cached tokens would have cost beyond what they did, each at its request's own prices."""

    @property
    def prompt_tokens(self) -> int:
        """The base of the cached share."""
        return self.uncached_input_tokens + self.cached_input_tokens

    @property
    def tokens(self) -> int:
        """Of all classes."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class UsageOverview:
    """Where an organization stands at `at`; days and months are those of `time_zone`."""

    at: datetime
    time_zone: str
    month: UsageSum
    """This month so far."""
    last_month: UsageSum
    """As long a span of the month before, at the most all of it."""
    today: UsageSum
    recent: UsageSum
    """The last 24 clock hours, the one that runs among them: up to an hour less than 24 hours."""
    first_token: FirstTokenTimes
    """Of the interactive requests of the same span as `recent`: nobody waits for bulk work."""
    days: tuple[UsageSum, ...]
    """The last 30 days, the oldest first, today last."""
    month_ends_at: datetime
    projected_month_pico: int | None
    """An estimate of what this month will have been spent: what it has, and the rest at the pace of
    the last seven whole days. None where no whole day has usage yet."""


@dataclass(frozen=True, slots=True)
class CacheSaving:
    """What caching saved of one model's requests."""

    model: str
    """As served."""
    currency: str
    prompt_tokens: int
    cached_input_tokens: int
    saved_pico: int


@dataclass(frozen=True, slots=True)
class KeyActivity:
    """What a key used by day: a value for each day, the oldest first, today last."""

    key_id: UUID
    requests: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """One layer of a chart: a value for each bucket, in their order."""

    name: UUID | str | None
    """A project's or key's id, a model, a tier, a class of tokens or a tag's value; None is what
    does not carry the tag, and the rest."""
    is_rest: bool
    """All groups together that have no series of their own."""
    values: tuple[int, ...]

    @property
    def total(self) -> int:
        """Over all buckets."""
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class TenantAccount:
    """An account as the operator sees it among all, in pico-units."""

    currency: str
    posted_pico: int
    held_pico: int
    floor_pico: int
    charged_pico: int
    """What usage of the asked span was charged, before what the operator corrects later."""


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What one tenant used of one model, as the operator sees it among all."""

    organization_id: UUID
    model: str
    tier: ServiceTier
    currency: str
    requests: int
    uncached_input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    charge_pico: int

    @property
    def tokens(self) -> int:
        """Of all classes."""
        return self.uncached_input_tokens + self.cached_input_tokens + self.output_tokens
