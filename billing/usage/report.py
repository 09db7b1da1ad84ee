"""Usage in buckets of time, grouped and filtered, exact at any moment.

Whole hours come from the rollups; hours that a bucket's bound cuts come from the events
themselves, and so do events that no rollup has counted yet. One statement reads all three, so
each event is in it once. Reads only the tenant's own rows. Called by the usage and cost views,
and by invoices.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db import connections
from psycopg import sql

from billing.contracts import (
    BucketWidth,
    UsageBucket,
    UsageDimension,
    UsagePage,
    UsageQuery,
    UsageRow,
    UsageTooWide,
)
from billing.usage.buckets import HOUR, bucket_bounds, cut_hours
from tenants.facade import tenant_scope

ROWS_MAX = 20_000
"""Rows of one page; a page that would have more ends earlier."""
BUCKETS_MAX = {
    BucketWidth.MINUTE: 1440,
    BucketWidth.HOUR: 168,
    BucketWidth.DAY: 366,
    BucketWidth.SPAN: 1,
}
"""Buckets of one page. Minutes are read from events, so a page of them stays short."""
COLUMNS = {
    UsageDimension.PROJECT: "project_id",
    UsageDimension.KEY: "key_id",
    UsageDimension.MODEL: "model_served",
    UsageDimension.TIER: "tier",
}
ROLLED = """
    SELECT hour AS at, {tag} AS tag, project_id, key_id, model_served, tier, currency,
           is_embedding, {sign} requests AS requests, {sign} errors AS errors,
           {sign} uncached_input_tokens AS uncached_input_tokens,
           {sign} cached_input_tokens AS cached_input_tokens,
           {sign} output_tokens AS output_tokens, {sign} cost_pico AS cost_pico,
           {sign} charge_pico AS charge_pico
      FROM {table}
     WHERE organization_id = %(organization)s
       AND hour >= %(start)s AND hour < %(end)s AND hour <> ALL (%(cut_hours)s)"""
ALL_ROLLED = sql.SQL(ROLLED).format(
    tag=sql.SQL("NULL::text"), sign=sql.SQL("+"), table=sql.SQL("billing_usage_hour")
)
TAG_ROLLED = sql.SQL(ROLLED + " AND tag_name = %(tag)s").format(
    tag=sql.SQL("tag_value::text"), sign=sql.SQL("+"), table=sql.SQL("billing_usage_tag_hour")
)
LESS_TAG_ROLLED = sql.SQL(ROLLED + " AND tag_name = %(tag)s").format(
    tag=sql.SQL("NULL::text"), sign=sql.SQL("-"), table=sql.SQL("billing_usage_tag_hour")
)
"""Taken from all, it leaves what does not carry the tag."""
SINGLE = """
    SELECT e.occurred_at, {tag}, e.project_id, e.key_id, e.model_served, e.tier, e.currency,
           {is_embedding}, 1, billing_usage_is_error(e.finish_reason)::int,
           e.uncached_input_tokens, e.cached_input_tokens, e.output_tokens, e.cost_pico,
           e.charge_pico
      FROM {source}
     WHERE e.organization_id = %(organization)s AND {span}"""
QUEUED = (
    "billing_usage_delta d JOIN billing_usage_event e"
    " ON e.occurred_at = d.occurred_at AND e.request_id = d.request_id"
)
QUEUED_SPAN = """d.organization_id = %(organization)s
       AND d.occurred_at >= %(start)s AND d.occurred_at < %(end)s
       AND date_trunc('hour', d.occurred_at, 'UTC') <> ALL (%(cut_hours)s)"""
EVENT_TAG = "left(billing_usage_tags(e.tags, e.end_user) ->> %(tag)s, 128)"
CUT = (
    "unnest(%(cut_starts)s::timestamptz[], %(cut_ends)s::timestamptz[]) AS piece (start_at, end_at)"
    " JOIN billing_usage_event e"
    " ON e.occurred_at >= piece.start_at AND e.occurred_at < piece.end_at"
    " LEFT JOIN billing_hold h ON h.id = e.request_id"
)
REPORT = """
    SELECT width_bucket(at, %(bounds)s::timestamptz[]), {columns}, currency,
           sum(requests), sum(errors), sum(uncached_input_tokens), sum(cached_input_tokens),
           sum(output_tokens), sum(cost_pico), sum(charge_pico)
      FROM ({sources}) AS used
     WHERE {conditions}
     GROUP BY {groups}
    HAVING sum(requests) > 0
     ORDER BY {groups}
     LIMIT %(rows_max)s"""


def usage_page(organization_id: UUID, query: UsageQuery) -> UsagePage:
    """The span's first `buckets_max` buckets, BUCKETS_MAX at most, and where the next page starts.

    Every bucket of the page is there, also the empty ones. Raises ValueError for an empty span,
    UsageTooWide when a single bucket has more than ROWS_MAX rows.
    """
    buckets_max = min(query.buckets_max, BUCKETS_MAX[query.width])
    bounds = bucket_bounds(query.start_at, query.end_at, query.width, query.time_zone, buckets_max)
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute(_statement(query), _parameters(organization_id, query, bounds))
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    whole = len(bounds) - 1
    if len(rows) > ROWS_MAX:
        # The last bucket read may lack rows: the page ends before it.
        whole = rows[-1][0] - 1
        if whole == 0:
            raise UsageTooWide(f"a bucket has more than {ROWS_MAX} rows: group or filter more")
    found = {
        number: tuple(_row(row) for row in some)
        for number, some in groupby(rows, key=lambda row: int(row[0]))
    }
    buckets = tuple(
        UsageBucket(bounds[i], bounds[i + 1], found.get(i + 1, ())) for i in range(whole)
    )
    end_at = bounds[whole]
    return UsagePage(buckets, end_at if end_at < query.end_at else None)


def _statement(query: UsageQuery) -> sql.Composed:
    selected = [
        sql.Identifier(column) if dimension in query.group_by else sql.SQL("NULL")
        for dimension, column in COLUMNS.items()
    ]
    selected.append(sql.SQL("tag" if query.by_tag else "NULL"))
    numbers = range(1, len(selected) + 3)
    return sql.SQL(REPORT).format(
        columns=sql.SQL(", ").join(selected),
        sources=sql.SQL(" UNION ALL ").join(_sources(query)),
        conditions=sql.SQL(" AND ").join(_conditions(query)),
        groups=sql.SQL(", ").join(sql.SQL(str(number)) for number in numbers),
    )


def _sources(query: UsageQuery) -> list[sql.Composed]:
    tagged = query.tag is not None
    tag = sql.SQL(EVENT_TAG if tagged else "NULL::text")
    queued = sql.SQL(SINGLE).format(
        tag=tag,
        is_embedding=sql.SQL("d.is_embedding"),
        source=sql.SQL(QUEUED),
        span=sql.SQL(QUEUED_SPAN),
    )
    cut = sql.SQL(SINGLE).format(
        tag=tag,
        is_embedding=sql.SQL("coalesce(h.output_tokens_max = 0, false)"),
        source=sql.SQL(CUT),
        span=sql.SQL("true"),
    )
    if not tagged:
        return [ALL_ROLLED, queued, cut]
    if query.tag_values:
        return [TAG_ROLLED, queued, cut]
    return [TAG_ROLLED, LESS_TAG_ROLLED, ALL_ROLLED, queued, cut]


def _conditions(query: UsageQuery) -> list[sql.SQL]:
    asked = {
        "tag = ANY (%(tag_values)s)": bool(query.tag_values),
        "project_id = ANY (%(projects)s)": bool(query.project_ids),
        "key_id = ANY (%(keys)s)": bool(query.key_ids),
        "model_served = ANY (%(models)s)": bool(query.models),
        "tier = ANY (%(tiers)s)": bool(query.tiers),
        "is_embedding = %(is_embedding)s": query.is_embedding is not None,
    }
    return [sql.SQL("true"), *(sql.SQL(text) for text, wanted in asked.items() if wanted)]


def _parameters(
    organization_id: UUID, query: UsageQuery, bounds: Sequence[datetime]
) -> dict[str, Any]:
    start, end = bounds[0], bounds[-1]
    hours = cut_hours(bounds)
    return {
        "organization": organization_id,
        "bounds": list(bounds[:-1]),
        "start": start,
        "end": end,
        "cut_hours": hours,
        "cut_starts": [max(hour, start) for hour in hours],
        "cut_ends": [min(hour + HOUR, end) for hour in hours],
        "tag": query.tag,
        "tag_values": list(query.tag_values),
        "projects": list(query.project_ids),
        "keys": list(query.key_ids),
        "models": list(query.models),
        "tiers": [tier.value for tier in query.tiers],
        "is_embedding": query.is_embedding,
        "rows_max": ROWS_MAX + 1,
    }


def _row(row: tuple[Any, ...]) -> UsageRow:
    _, project_id, key_id, model, tier, tag_value, currency, *sums = row
    return UsageRow(project_id, key_id, model, tier, tag_value, currency, *map(int, sums))
