"""How a limit would have worked: what each day or month of the last weeks used of it.

An estimate from the rollups, where a request counts in the hour it was settled; the counters that
enforce are `billing/quotas.py`'s. Changes nothing. Called where a limit is edited.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate, groupby
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import connections

from billing.contracts import (
    BucketWidth,
    PreviewedPeriod,
    QuotaInvalid,
    QuotaMetric,
    QuotaPeriod,
    QuotaPreview,
    QuotaScope,
    QuotaWanted,
    UsageBucket,
    UsageQuery,
    UsageRow,
)
from billing.usage.buckets import bucket_end, local_midnight
from billing.usage.report import usage_page
from tenants.facade import tenant_scope

DAYS = 30
"""A month of days; so many and the days of a month before them are looked at, at the most."""
END_USER_TAG = "user"
LINE = """
    SELECT id FROM tenants_api_key
     WHERE organization_id = %s AND tenants_key_line(id) = tenants_key_line(%s)"""


def preview_quota(
    organization_id: UUID,
    wanted: QuotaWanted,
    now: datetime,
    time_zone: str,
) -> QuotaPreview:
    """What the last DAYS local days used of a limit, today among them; of one for months, the whole
    months that they touch. What hours keep under `(other)` is of no end user.

    Raises QuotaInvalid for a limit that each end user has by himself: there is no single use of it.
    """
    if wanted.scope is QuotaScope.END_USER and not wanted.end_user:
        raise QuotaInvalid("a limit for each end user has no preview", "scope")
    zone = ZoneInfo(time_zone)
    first = now.astimezone(zone).date() - timedelta(days=DAYS - 1)
    if wanted.period is QuotaPeriod.MONTH:
        first = first.replace(day=1)
    query = UsageQuery(
        start_at=local_midnight(first, time_zone),
        end_at=bucket_end(now, BucketWidth.DAY, time_zone),
        time_zone=time_zone,
        buckets_max=2 * DAYS + 2,
    )
    buckets = usage_page(organization_id, _of_scope(organization_id, query, wanted)).buckets
    periods = [
        _period(list(some), wanted)
        for _, some in groupby(buckets, key=lambda bucket: _period_of(bucket, wanted, zone))
    ]
    return QuotaPreview(
        wanted=wanted,
        time_zone=time_zone,
        periods=tuple(period for period, _ in periods),
        days=len(buckets),
        days_reached=sum(reached for _, reached in periods),
    )


def _of_scope(organization_id: UUID, query: UsageQuery, wanted: QuotaWanted) -> UsageQuery:
    match wanted.scope:
        case QuotaScope.PROJECT if wanted.scope_id is not None:
            return replace(query, project_ids=(wanted.scope_id,))
        case QuotaScope.KEY if wanted.scope_id is not None:
            return replace(query, key_ids=_line(organization_id, wanted.scope_id))
        case QuotaScope.END_USER:
            return replace(query, tag=END_USER_TAG, tag_values=(wanted.end_user,))
        case QuotaScope.ORGANIZATION:
            return query
    raise QuotaInvalid("scopes project and key take an id", "scope_id")


def _line(organization_id: UUID, key_id: UUID) -> tuple[UUID, ...]:
    """All keys of a line of rotations: a key's quota counts them together."""
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute(LINE, [organization_id, key_id])
        keys: list[tuple[UUID]] = cursor.fetchall()
    # Without one, the filter would let everything pass.
    return tuple(found for (found,) in keys) or (key_id,)


def _period_of(bucket: UsageBucket, wanted: QuotaWanted, zone: ZoneInfo) -> tuple[int, ...]:
    day = bucket.start_at.astimezone(zone).date()
    is_day = wanted.period is QuotaPeriod.DAY
    return (day.year, day.month, day.day) if is_day else (day.year, day.month)


def _period(days: Sequence[UsageBucket], wanted: QuotaWanted) -> tuple[PreviewedPeriod, int]:
    """One window of the limit, and how many of its days end with the limit reached."""
    reached = list(accumulate(sum(amount_of(row, wanted) for row in day.rows) for day in days))
    over = [day for day, used in zip(days, reached, strict=True) if used >= wanted.limit_amount]
    period = PreviewedPeriod(
        start_at=days[0].start_at,
        end_at=days[-1].end_at,
        used_amount=reached[-1],
        reached_on=over[0].start_at if over else None,
    )
    return period, len(over)


def amount_of(row: UsageRow, wanted: QuotaWanted) -> int:
    """What some usage counts in a limit's metric, as billing_quota_used has it. Pure."""
    cached = row.cached_input_tokens if wanted.counts_cached else 0
    input_tokens = row.uncached_input_tokens + cached
    return {
        QuotaMetric.REQUESTS: row.requests,
        QuotaMetric.TOKENS: input_tokens + row.output_tokens,
        QuotaMetric.INPUT_TOKENS: input_tokens,
        QuotaMetric.OUTPUT_TOKENS: row.output_tokens,
        QuotaMetric.SPEND: row.charge_pico,
    }[wanted.metric]
