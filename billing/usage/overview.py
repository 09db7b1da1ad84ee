"""Where an organization stands: its month, its day, its last hours, what caching saved.

Two reads whatever the number of requests, and never a sum that a usage report would not give.
Reads only the tenant's own rows. Called by the console.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

from billing.contracts import (
    BucketWidth,
    CacheSaving,
    ServiceTier,
    UsageOverview,
    UsageSum,
)
from billing.usage.buckets import HOUR, bucket_bounds, hour_of, local_midnight
from billing.usage.latencies import times_of
from billing.usage.model_hours import SUMMED, Asked, Group, first_token_counts, sums
from tenants.facade import tenant_scope

DAYS = 30
"""Days shown, today among them."""
RECENT_HOURS = 24
PACE_DAYS = 7
"""Whole days whose pace the rest of a month is estimated by."""
MICROSECOND = timedelta(microseconds=1)

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Spans:
    """What an overview looks at; what runs on ends with the hour, so that no hour is cut."""

    month: Span
    last_month: Span
    today: Span
    recent: Span
    days: tuple[Span, ...]
    month_ends_at: datetime

    def each(self) -> tuple[Span, ...]:
        """All of them."""
        return (self.month, self.last_month, self.today, self.recent, *self.days)


def usage_overview(organization_id: UUID, now: datetime, time_zone: str) -> UsageOverview:
    """All that an overview shows of usage, exact at `now`, which no request is later than."""
    spans = spans_at(now, time_zone)
    bounds = sorted({at for span in spans.each() for at in span})
    with tenant_scope(organization_id):
        pieces = sums(organization_id, Asked(bounds, ()))
        asked = Asked(spans.recent, (), tiers=(ServiceTier.INTERACTIVE,))
        counts = first_token_counts(organization_id, asked)

    def sum_of(span: Span) -> UsageSum:
        return _sum(span, min(span[1], now), bounds, pieces)

    days = tuple(sum_of(span) for span in spans.days)
    month = sum_of(spans.month)
    return UsageOverview(
        at=now,
        time_zone=time_zone,
        month=month,
        last_month=sum_of(spans.last_month),
        today=sum_of(spans.today),
        recent=sum_of(spans.recent),
        first_token=times_of(counts.get((0, ()), ())),
        days=days,
        month_ends_at=spans.month_ends_at,
        projected_month_pico=projected_pico(
            month.charge_pico, days[-1 - PACE_DAYS : -1], spans.month_ends_at - now
        ),
    )


def cache_savings(
    organization_id: UUID,
    start_at: datetime,
    end_at: datetime,
    project_ids: tuple[UUID, ...] = (),
    models: tuple[str, ...] = (),
    tiers: tuple[ServiceTier, ...] = (),
) -> tuple[CacheSaving, ...]:
    """What caching saved of each model, the most first. Raises ValueError for an empty span."""
    bounds = bucket_bounds(start_at, end_at, BucketWidth.SPAN, "UTC", 1)
    asked = Asked(bounds, ("model_served", "currency"), project_ids, models, tiers)
    savings = []
    for (_, (model, currency)), amounts in sums(organization_id, asked).items():
        used = dict(zip(SUMMED, amounts, strict=True))
        cached = used["cached_input_tokens"]
        prompt = used["uncached_input_tokens"] + cached
        savings.append(CacheSaving(model, currency, prompt, cached, used["cache_saved_pico"]))
    return tuple(sorted(savings, key=lambda one: (-one.saved_pico, one.model)))


def spans_at(now: datetime, time_zone: str) -> Spans:
    """The spans of an overview. Pure."""
    hour_ends_at = hour_of(now) + HOUR
    today = now.astimezone(ZoneInfo(time_zone)).date()
    first = today.replace(day=1)
    month_start = local_midnight(first, time_zone)
    last_start = local_midnight((first - timedelta(days=1)).replace(day=1), time_zone)
    today_start = local_midnight(today, time_zone)
    bounds = [
        *(local_midnight(today - timedelta(days=n), time_zone) for n in range(DAYS - 1, -1, -1)),
        hour_ends_at,
    ]
    return Spans(
        month=(month_start, hour_ends_at),
        last_month=(last_start, min(last_start + (now - month_start), month_start)),
        today=(today_start, hour_ends_at),
        recent=(hour_ends_at - RECENT_HOURS * HOUR, hour_ends_at),
        days=tuple(pairwise(bounds)),
        month_ends_at=local_midnight((first + timedelta(days=31)).replace(day=1), time_zone),
    )


def projected_pico(spent_pico: int, whole_days: Sequence[UsageSum], rest: timedelta) -> int | None:
    """What is spent, and `rest` at the pace of these days from the first with usage. Pure."""
    used = list(whole_days)
    while used and not used[0].requests:
        del used[0]
    if not used:
        return None
    pace = used[-1].end_at - used[0].start_at
    charged_pico = sum(day.charge_pico for day in used)
    return spent_pico + charged_pico * (rest // MICROSECOND) // (pace // MICROSECOND)


def _sum(
    span: Span, end_at: datetime, bounds: Sequence[datetime], pieces: Mapping[Group, list[int]]
) -> UsageSum:
    within = range(bounds.index(span[0]), bounds.index(span[1]))
    nothing = [0] * len(SUMMED)
    amounts = map(sum, zip(*(pieces.get((n, ()), nothing) for n in within), nothing, strict=True))
    return UsageSum(span[0], end_at, *amounts)
