"""What bulk work and the ledger must agree on: the queries of `manage.py reconcile` for both.

Neither package sees the other, so the roof compares them: each item has one charge, and each
attempt that was not its answer has none. Registered by the wiring; changes nothing.
"""

from batch_jobs.facade import INVARIANTS as OF_BULK
from billing.contracts import Invariant
from billing.facade import register_invariants

DONE_NOT_CHARGED_SO = """
    SELECT i.id, i.request_id, i.charge_pico, e.charge_pico
      FROM bulk_item i
      LEFT JOIN billing_usage_event e ON e.request_id = i.request_id
       AND e.organization_id = i.organization_id
     WHERE i.state = 'done' AND i.request_id IS NOT NULL
       AND e.charge_pico IS DISTINCT FROM i.charge_pico"""

ATTEMPT_CHARGED = """
    SELECT a.item_id, i.state, i.request_id, a.request_id, e.charge_pico
      FROM bulk_attempt a
      JOIN billing_usage_event e ON e.request_id = a.request_id
       AND e.organization_id = a.organization_id
      LEFT JOIN bulk_item i ON i.id = a.item_id
     WHERE e.charge_pico <> 0
       AND (a.request_id IS DISTINCT FROM i.request_id OR i.state NOT IN ('answered', 'done'))"""

INVARIANTS = (
    *(Invariant(*one) for one in OF_BULK),
    Invariant(
        "a finished item's request has no usage event, or one of another charge",
        "bulk_item",
        DONE_NOT_CHARGED_SO,
    ),
    Invariant(
        "an attempt that is not its item's answer was charged", "bulk_attempt", ATTEMPT_CHARGED
    ),
)


def register() -> None:
    """Called by the wiring, once."""
    register_invariants(INVARIANTS)
