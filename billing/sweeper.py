"""The sweep of holds that nobody renews, and the partitions ahead of time.

Runs as the housekeeper and touches only holds whose owner has been silent long enough for an
engine's journal to have spoken; sweeps at once share the work. Called by a Celery task.
"""

from datetime import timedelta

from billing.contracts import SweepReport
from billing.retry import call

SWEEP_HOLDS_MAX = 500
"""Holds one sweep voids; the rest waits for the next."""
PARTITIONS_AHEAD_MONTHS = 3


def sweep(lapse_s: int, journal_wait_s: int, using: str = "housekeeper") -> SweepReport:
    """Void open holds not renewed for both waits, each with a zero-charge estimated usage event.

    A settle that comes later is answered, not charged. A hold whose own books keep it from being
    closed stays open, stops no other, and is tried again after another wait.
    """
    quiet = timedelta(seconds=max(lapse_s, journal_wait_s))
    rows = call(
        "SELECT request_id, fault FROM billing_sweep_holds(%s, %s)", [quiet, SWEEP_HOLDS_MAX], using
    )
    call("SELECT billing_ensure_partitions(%s)", [PARTITIONS_AHEAD_MONTHS], using)
    return SweepReport(
        voided=tuple(request_id for request_id, fault in rows if not fault),
        stuck={request_id: fault for request_id, fault in rows if fault},
    )
