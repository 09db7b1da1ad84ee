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
from billing.usage.buckets import bucket_bounds, cut_hours
from billing.usage.sources import QUEUED, QUEUED_SPAN, in_cut_hours, listed
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
    SELECT hour AS at, {tag} AS tag, {keyed} project_id, model_served, tier, currency, requests,
           errors, uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico, charge_pico
      FROM {table}
     WHERE organization_id = %(organization)s {named}
       AND hour >= %(start)s AND hour < %(end)s AND hour <> ALL (%(cut_hours)s)"""
KEYED = "key_id, is_embedding,"
SINGLE = """
    SELECT e.occurred_at AS at, {tag} AS tag, e.project_id, e.key_id, e.model_served, e.tier,
           e.currency, {is_embedding} AS is_embedding, 1 AS requests,
           billing_usage_is_error(e.finish_reason)::int AS errors, e.uncached_input_tokens,
           e.cached_input_tokens, e.output_tokens, e.cost_pico, e.charge_pico
      FROM {source}
     WHERE e.organization_id = %(organization)s AND {span}"""
CUT = "billing_usage_event e LEFT JOIN billing_hold h ON h.id = e.request_id"
EVENT_TAG = "left(billing_usage_tags(e.tags, e.end_user) ->> %(tag)s, 128)"
SUMMED = (
    "requests",
    "errors",
    "uncached_input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "cost_pico",
    "charge_pico",
)
WORK_MEMORY = "32MB"
"""Of one report, in PostgreSQL: groups are hashed within it, where less would sort rows on disk."""
# Each source is added up by itself: few groups are left of it to be added to the others'.
ADDED_UP = """
    SELECT {bucket} AS bucket, {columns}, {sums}
      FROM ({source}) AS used WHERE {conditions} GROUP BY bucket, {columns}"""
REPORT = """
    WITH rolled AS MATERIALIZED ({rolled})
    SELECT bucket, {shown}, {sums} FROM ({parts}) AS part
     GROUP BY bucket, {columns} HAVING sum(requests) > 0
     ORDER BY bucket, {columns} LIMIT %(rows_max)s"""


def usage_page(organization_id: UUID, query: UsageQuery) -> UsagePage:
    """The span's first `buckets_max` buckets, BUCKETS_MAX at most, and where the next page starts.

    Every bucket of the page is there, also the empty ones. Raises ValueError for an empty span,
    UsageTooWide when a single bucket has more than ROWS_MAX rows.
    """
    buckets_max = min(query.buckets_max, BUCKETS_MAX[query.width])
    bounds = bucket_bounds(query.start_at, query.end_at, query.width, query.time_zone, buckets_max)
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', %s, true)", [WORK_MEMORY])
        cursor.execute(_statement(query, bounds), _parameters(organization_id, query, bounds))
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


def _statement(query: UsageQuery, bounds: Sequence[datetime]) -> sql.Composed:
    columns = [COLUMNS[dimension] for dimension in COLUMNS if dimension in query.group_by]
    columns += [*(["tag"] if query.by_tag else []), "currency"]
    tagged = query.tag is not None
    rolled, untagged, queued, cut = (
        _added_up(query, columns, source) for source in _sources(query, bounds)
    )
    whole = [sql.SQL("SELECT * FROM rolled"), queued, cut]
    if tagged and not query.tag_values:
        # All less what carries the tag is what does not carry it.
        less = ["NULL" if column == "tag" else column for column in columns]
        less += [f"-{column}" for column in SUMMED]
        whole += [
            untagged,
            sql.SQL("SELECT bucket, {} FROM rolled").format(listed(map(sql.SQL, less))),
        ]
    shown = [*COLUMNS.values(), "tag", "currency"]
    return sql.SQL(REPORT).format(
        rolled=rolled,
        parts=sql.SQL(" UNION ALL ").join(whole),
        shown=listed(sql.SQL(column if column in columns else "NULL") for column in shown),
        columns=listed(sql.Identifier(column) for column in columns),
        sums=_sums(),
    )


def _added_up(query: UsageQuery, columns: Sequence[str], source: sql.Composed) -> sql.Composed:
    bounded = query.width is not BucketWidth.SPAN
    return sql.SQL(ADDED_UP).format(
        bucket=sql.SQL("width_bucket(at, %(bounds)s::timestamptz[])" if bounded else "1"),
        columns=listed(sql.Identifier(column) for column in columns),
        sums=_sums(),
        source=source,
        conditions=sql.SQL(" AND ").join(_conditions(query)),
    )


def _sources(query: UsageQuery, bounds: Sequence[datetime]) -> list[sql.Composed]:
    """Whole hours, of the tag if there is one; whole hours of all; the queue; hours cut in two."""
    tagged = query.tag is not None
    tag = sql.SQL(EVENT_TAG if tagged else "NULL::text")
    by_key = UsageDimension.KEY in query.group_by or bool(query.key_ids)
    if by_key or query.is_embedding is not None:
        table, keyed = "billing_usage_hour", KEYED
    else:
        table, keyed = "billing_usage_model_hour", ""  # of the same events, in fewer rows
    of_all = sql.SQL(ROLLED).format(
        tag=sql.SQL("NULL::text"),
        table=sql.Identifier(table),
        keyed=sql.SQL(keyed),
        named=sql.SQL(""),
    )
    of_tag = sql.SQL(ROLLED).format(
        tag=sql.SQL("tag_value::text"),
        table=sql.Identifier("billing_usage_tag_hour"),
        keyed=sql.SQL(KEYED),
        named=sql.SQL("AND tag_name = %(tag)s"),
    )
    queued = sql.SQL(SINGLE).format(
        tag=tag,
        is_embedding=sql.SQL("e.is_embedding"),
        source=sql.SQL(QUEUED),
        span=sql.SQL(QUEUED_SPAN),
    )
    cut = sql.SQL(SINGLE).format(
        tag=tag,
        is_embedding=sql.SQL("coalesce(h.output_tokens_max = 0, false)"),
        source=sql.SQL(CUT),
        span=in_cut_hours(bounds),
    )
    return [of_tag if tagged else of_all, of_all, queued, cut]


def _sums() -> sql.Composed:
    return listed(sql.SQL("sum({0}) AS {0}").format(sql.Identifier(name)) for name in SUMMED)


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
    return {
        "organization": organization_id,
        "bounds": list(bounds[:-1]),
        "start": bounds[0],
        "end": bounds[-1],
        "cut_hours": cut_hours(bounds),
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
