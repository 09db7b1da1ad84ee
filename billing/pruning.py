"""Deleting what money kept for a time and needs no more: old counters, messages, exports.

Only rows that no balance, receipt, correction, replay or invariant is computed from. Holds, usage
events and the ledger are none of these: they prove each other. Works in bounded pieces, as the
housekeeper. Called by a Celery task.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connections

HOUSEKEEPER = "housekeeper"
PIECE_MAX = 1_000
PIECES_MAX = 100
"""Of one table in one run; the rest waits for the next."""
KEPT_MONTHS = 13
"""A year, and the month that is being looked back from. Far beyond the 35 days for which Stripe
takes usage, the 40 for which we plan it, and the 30 for which Stripe sends a message again."""


@dataclass(frozen=True, slots=True)
class Prunable:
    """Rows of a table that may go once `over` holds."""

    table: str
    over: str


_BEFORE = "%(now)s::timestamptz - make_interval(months => %(months)s)"
PRUNABLE = (
    # A counter of a window long past stands in nobody's way; its holds say the same.
    Prunable("billing_quota_counter", f"window_start < {_BEFORE}"),
    # That a message came. Its effect is in the books, and the same message would change nothing.
    # One that contradicted them waits for a person, however long.
    Prunable("billing_stripe_event", f"applied_at < {_BEFORE} AND outcome <> 'quarantined'"),
    # The message itself; of one that was applied only that it came is left.
    Prunable("billing_stripe_message", f"ended_at < {_BEFORE}"),
    # What Stripe has, and a daily comparison looked at. What it refused is still to be settled.
    Prunable("billing_stripe_export", f"hour < {_BEFORE} AND state = 'delivered'"),
)


def prune(now: datetime) -> int:
    """Delete what is older than KEPT_MONTHS, of all tenants; returns how many rows went."""
    return sum(_prune(prunable, now) for prunable in PRUNABLE)


def _prune(prunable: Prunable, now: datetime) -> int:
    table, over, pruned = prunable.table, prunable.over, 0
    for _ in range(PIECES_MAX):
        with connections[HOUSEKEEPER].cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {table} WHERE ctid = ANY"  # noqa: S608 - our own text
                f" (ARRAY(SELECT ctid FROM {table} WHERE {over} LIMIT %(most)s))",
                {"now": now, "months": KEPT_MONTHS, "most": PIECE_MAX},
            )
            pruned += cursor.rowcount
            if cursor.rowcount < PIECE_MAX:
                break
    return pruned
