"""What each key used by day: the spark lines of a list of keys, all of them in one read.

Reads only the tenant's own rows. Called by the console.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from billing.contracts import (
    BucketWidth,
    KeyActivity,
    UsageBucket,
    UsageDimension,
    UsageQuery,
)
from billing.usage.buckets import bucket_end, local_midnight
from billing.usage.report import usage_page

DAYS = 14


def key_activity(
    organization_id: UUID, now: datetime, time_zone: str, key_ids: Collection[UUID]
) -> dict[UUID, KeyActivity]:
    """Requests and tokens of the last DAYS days, today among them, of each of the keys that has
    any."""
    if not key_ids:
        return {}
    first = now.astimezone(ZoneInfo(time_zone)).date() - timedelta(days=DAYS - 1)
    query = UsageQuery(
        start_at=local_midnight(first, time_zone),
        end_at=bucket_end(now, BucketWidth.DAY, time_zone),
        time_zone=time_zone,
        group_by=frozenset({UsageDimension.KEY}),
        key_ids=tuple(key_ids),
        buckets_max=DAYS,
    )
    requests: dict[UUID, list[int]] = defaultdict(lambda: [0] * DAYS)
    tokens: dict[UUID, list[int]] = defaultdict(lambda: [0] * DAYS)
    for place, bucket in enumerate(_buckets(organization_id, query)):
        for row in bucket.rows:
            assert row.key_id is not None
            requests[row.key_id][place] += row.requests
            tokens[row.key_id][place] += (
                row.uncached_input_tokens + row.cached_input_tokens + row.output_tokens
            )
    return {
        key_id: KeyActivity(key_id, tuple(requests[key_id]), tuple(tokens[key_id]))
        for key_id in requests
    }


def _buckets(organization_id: UUID, query: UsageQuery) -> list[UsageBucket]:
    """One page, unless there are so many keys that it ends earlier."""
    buckets: list[UsageBucket] = []
    start_at: datetime | None = query.start_at
    while start_at is not None:
        page = usage_page(organization_id, replace(query, start_at=start_at))
        buckets += page.buckets
        start_at = page.next_at
    return buckets
