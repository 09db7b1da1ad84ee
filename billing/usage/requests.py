"""Recent requests, newest first, as their usage events tell them.

A page reads its tenant's events by an index, in order of time, and a filter that matches little
looks at a bounded number of them: such a page may be short, or empty, and still have a next one.
Reading never bills. Called by the list of requests.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from billing.contracts import (
    RequestFilter,
    RequestPage,
    RequestSummary,
    ServiceTier,
    UsageCounts,
    UsageSource,
)
from billing.models import Hold
from tenants.facade import tenant_scope

SCANNED_MAX = 4_000
"""Events one page looks at; the next page goes on from there."""
USER_TAG = "user"
"""An event's end user, among its tags."""
COLUMNS = (
    "request_id, occurred_at, held_at, project_id, key_id, tier, currency, model_asked,"
    " model_served, uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico,"
    " charge_pico, finish_reason, source, queue_ms, prefill_ms, decode_ms, end_user, tags"
)
SCANNED = """
    SELECT {columns} FROM billing_usage_event
     WHERE organization_id = %(organization)s AND {span}
     ORDER BY occurred_at {order}, request_id {order} LIMIT %(scanned_max)s"""
MATCHED = """
    SELECT * FROM ({scanned}) AS scanned WHERE {matches}
     ORDER BY occurred_at {order}, request_id {order} LIMIT %(rows_max)s"""


def recent_requests(
    organization_id: UUID,
    wanted: RequestFilter,
    rows_max: int,
    after: UUID | None = None,
    *,
    ascending: bool = False,
) -> RequestPage:
    """Up to `rows_max` settled requests behind the one named, if any, in order of settling.

    An `after` that is no settled request of this tenant is as if not given.
    """
    matches = _matches(wanted)
    parts = {
        "columns": sql.SQL(COLUMNS),
        "order": sql.SQL("ASC" if ascending else "DESC"),
    }
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        behind = None if after is None else _settled_at(organization_id, after)
        scanned = sql.SQL(SCANNED).format(
            **parts, span=sql.SQL(" AND ").join(_span(wanted, behind, ascending=ascending))
        )
        values = {
            "organization": organization_id,
            "after": after,
            "behind": behind,
            "rows_max": rows_max,
            "scanned_max": SCANNED_MAX if matches else rows_max,
            **_values(wanted),
        }
        statement = sql.SQL(MATCHED).format(
            **parts,
            scanned=scanned,
            matches=sql.SQL(" AND ").join([sql.SQL("true"), *matches]),
        )
        cursor.execute(statement, values)
        rows = tuple(_summary(row) for row in cursor.fetchall())
        goes_on_after = None
        if matches and len(rows) < rows_max:
            goes_on_after = _last_scanned(cursor, scanned, values)
    return RequestPage(rows, goes_on_after)


def _settled_at(organization_id: UUID, request_id: UUID) -> datetime | None:
    """An event carries its hold's closing time."""
    return (
        Hold.objects.filter(organization_id=organization_id, id=request_id)
        .values_list("closed_at", flat=True)
        .first()
    )


def _span(wanted: RequestFilter, behind: datetime | None, *, ascending: bool) -> list[sql.SQL]:
    """What an index answers; a single key has one of its own."""
    beyond = f"(occurred_at, request_id) {'>' if ascending else '<'} (%(behind)s, %(after)s)"
    asked = {
        "occurred_at >= %(start)s": wanted.start_at is not None,
        "occurred_at < %(end)s": wanted.end_at is not None,
        beyond: behind is not None,
        "key_id = %(key)s": wanted.key_id is not None,
    }
    return [sql.SQL("true"), *(sql.SQL(text) for text, given in asked.items() if given)]


def _matches(wanted: RequestFilter) -> list[sql.SQL]:
    """What no index answers."""
    asked = {
        "project_id = %(project)s": wanted.project_id is not None,
        "model_served = %(model)s": wanted.model is not None,
        "tier = %(tier)s": wanted.tier is not None,
        "finish_reason = %(finish_reason)s": wanted.finish_reason is not None,
        "billing_usage_is_error(finish_reason)": wanted.errors_only,
        # As billing_usage_tags has it, without building an object for each event.
        "coalesce(nullif(end_user, ''), tags ->> %(tag)s) = %(tag_value)s": wanted.tag == USER_TAG,
        "tags ->> %(tag)s = %(tag_value)s": wanted.tag not in (None, USER_TAG),
    }
    return [sql.SQL(text) for text, given in asked.items() if given]


def _values(wanted: RequestFilter) -> dict[str, Any]:
    return {
        "start": wanted.start_at,
        "end": wanted.end_at,
        "key": wanted.key_id,
        "project": wanted.project_id,
        "model": wanted.model,
        "tier": None if wanted.tier is None else wanted.tier.value,
        "finish_reason": wanted.finish_reason,
        "tag": wanted.tag,
        "tag_value": wanted.tag_value,
    }


def _last_scanned(
    cursor: CursorWrapper, scanned: sql.Composed, values: dict[str, Any]
) -> UUID | None:
    """The last event that a page looked at, where it stopped for having looked at enough."""
    statement = sql.SQL("SELECT request_id FROM ({}) AS s OFFSET %(skipped)s").format(scanned)
    cursor.execute(statement, values | {"skipped": values["scanned_max"] - 1})
    row: tuple[UUID] | None = cursor.fetchone()
    return row[0] if row else None


def _summary(row: Sequence[Any]) -> RequestSummary:
    return RequestSummary(
        request_id=row[0],
        occurred_at=row[1],
        held_at=row[2],
        project_id=row[3],
        key_id=row[4],
        tier=ServiceTier(row[5]),
        currency=row[6],
        model_asked=row[7],
        model_served=row[8],
        counts=UsageCounts(row[9], row[10], row[11]),
        cost_pico=int(row[12]),
        charge_pico=int(row[13]),
        finish_reason=row[14],
        source=UsageSource(row[15]),
        queue_ms=row[16],
        prefill_ms=row[17],
        decode_ms=row[18],
        end_user=row[19],
        tags=json.loads(row[20]),
    )
