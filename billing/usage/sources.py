"""Where reports find events that no whole hour of a rollup holds, as pieces of SQL.

Used by the reports beside it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from psycopg import sql

from billing.usage.buckets import cut_pieces

QUEUED = (
    "billing_usage_delta d JOIN billing_usage_event e"
    " ON e.occurred_at = d.occurred_at AND e.request_id = d.request_id"
)
"""Events that no rollup has counted; those in hours that are cut are read as all of these are."""
QUEUED_SPAN = """d.organization_id = %(organization)s
       AND d.occurred_at >= %(start)s AND d.occurred_at < %(end)s
       AND date_trunc('hour', d.occurred_at, 'UTC') <> ALL (%(cut_hours)s)"""
# Each piece by its own bounds: a join with a list of them is planned as a walk through all events.
PIECE = "(e.occurred_at >= {} AND e.occurred_at < {})"


def in_cut_hours(bounds: Sequence[datetime]) -> sql.Composable:
    """When an event lies in an hour that is cut."""
    pieces = [
        sql.SQL(PIECE).format(sql.Literal(start), sql.Literal(end))
        for start, end in cut_pieces(bounds)
    ]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(pieces)) if pieces else sql.SQL("false")


def listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    """With commas between them."""
    return sql.SQL(", ").join(parts)
