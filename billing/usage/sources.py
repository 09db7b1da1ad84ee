"""Where reports find events that no whole hour of a rollup holds, as pieces of SQL.

Used by the reports beside it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from psycopg import sql

from billing.usage.buckets import cut_pieces

# A full join, since that is never done as a loop: to the planner a queue that was just empty is one
# row, for each of which it would read all of the tenant's events. OFFSET keeps it a full join.
QUEUED = """(
    WITH queue AS MATERIALIZED (
        SELECT occurred_at, request_id, is_embedding FROM billing_usage_delta
         WHERE organization_id = %(organization)s
           AND occurred_at >= %(start)s AND occurred_at < %(end)s
           AND date_trunc('hour', occurred_at, 'UTC') <> ALL (%(cut_hours)s))
    SELECT found.*, queue.is_embedding,
           queue.request_id IS NOT NULL AND found.request_id IS NOT NULL AS is_queued
      FROM queue FULL JOIN (
        SELECT * FROM billing_usage_event
         WHERE organization_id = %(organization)s
           AND occurred_at >= (SELECT min(occurred_at) FROM queue)
           AND occurred_at <= (SELECT max(occurred_at) FROM queue)) AS found
        ON found.occurred_at = queue.occurred_at AND found.request_id = queue.request_id
    OFFSET 0) AS e"""
"""Events that no rollup has counted; those in hours that are cut are read as all of these are."""
QUEUED_SPAN = "e.is_queued"
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
