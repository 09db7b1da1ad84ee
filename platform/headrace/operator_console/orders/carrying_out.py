"""Carrying out what operators ordered: the worker's side, as the housekeeper.

Believes an order by its signature, not by the table it is in, and asks again whether its operator
is of the staff. Each is claimed for a while, so that of two workers one does it; every act may be
done twice without harm, should a worker end in the middle. Called by the Celery task.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.db import InternalError, ProgrammingError, connections, transaction
from django.db.models import Q

from headrace.operator_console.models import OrderRow
from headrace.operator_console.orders.acts import ACTS, Refused
from headrace.operator_console.orders.shapes import OrderKind, Outcome, Placed, is_signed

HOUSEKEEPER_ALIAS = "housekeeper"
CLAIM = timedelta(seconds=120)
"""After so long a worker counts as gone; no act takes as long."""
AGE_MAX = timedelta(hours=1)
"""What waited longer is refused: nobody expects it any more."""
ORDERS_MAX = 100
"""Of one run."""

log = structlog.get_logger(__name__)


def carry_out() -> int:
    """All that wait, in the order they were placed; returns how many ended."""
    ended = 0
    while ended < ORDERS_MAX and (row := _claim()) is not None:
        outcome, answer = _carried_out(row)
        OrderRow.objects.using(HOUSEKEEPER_ALIAS).filter(id=row.id, outcome="").update(
            outcome=outcome.value, answer=answer, ended_at=datetime.now(UTC)
        )
        log.info("an operator's order ended", order=row.id.hex, kind=row.kind, outcome=outcome)
        ended += 1
    return ended


def _claim() -> OrderRow | None:
    now = datetime.now(UTC)
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        row = (
            OrderRow.objects.using(HOUSEKEEPER_ALIAS)
            .select_for_update(skip_locked=True)
            .filter(Q(claimed_at=None) | Q(claimed_at__lt=now - CLAIM), outcome="")
            .order_by("placed_at")
            .first()
        )
        if row is not None:
            row.claimed_at = now
            row.save(using=HOUSEKEEPER_ALIAS, update_fields=["claimed_at"])
    return row


def _carried_out(row: OrderRow) -> tuple[Outcome, dict[str, Any]]:
    order = Placed(row.id, row.operator_id, row.ip, row.request_id, row.kind, row.body)
    if not is_signed(order, bytes(row.signature)):
        log.error("an operator's order is not signed by us", order=row.id.hex)
        return _refusal("It is not signed by this house.")
    if row.placed_at < datetime.now(UTC) - AGE_MAX:
        return _refusal("It waited for too long. Order it again.")
    if not _is_operator(order):
        return _refusal("Who ordered it is no operator any more.")
    try:
        return Outcome.DONE, ACTS[OrderKind(order.kind)](order)
    except Refused as refusal:
        return Outcome.REFUSED, refusal.answer


def _refusal(text: str) -> tuple[Outcome, dict[str, Any]]:
    return Outcome.REFUSED, {"text": text}


def _is_operator(order: Placed) -> bool:
    try:
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute("SELECT tenants_require_operator(%s)", [order.operator_id])
    except (ProgrammingError, InternalError):
        return False
    return True
