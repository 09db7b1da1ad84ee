"""Placing an operator's orders, and reading what came of them: the web process' side.

Runs as role `app`, through functions of the database that ask whether the person is of the staff.
Does nothing of what is ordered. Called by the operator's pages.
"""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import structlog
from celery import current_app
from django.conf import settings
from django.db import connections
from kombu.exceptions import OperationalError

from headrace.operator_console.orders.shapes import (
    Order,
    OrderKind,
    Outcome,
    Placed,
    signature,
)

APP_ALIAS = "default"
WAITING_MAX = 100
"""Orders that wait; more are not taken."""
CARRY_OUT = "headrace.carry_out_orders"

log = structlog.get_logger(__name__)


class TooManyWaiting(Exception):
    """WAITING_MAX is met: no worker carries anything out."""


def place(order: Placed) -> None:
    """Signs it and leaves it to a worker; the same order again changes nothing.

    Raises TooManyWaiting, and ProgrammingError for somebody who is no operator.
    """
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT operator_place_order(%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                order.operator_id,
                order.order_id,
                order.ip,
                order.request_id,
                order.kind,
                order.body,
                signature(order),
                WAITING_MAX,
            ],
        )
        (taken,) = cursor.fetchone()
    if not taken:
        raise TooManyWaiting
    try:
        current_app.send_task(CARRY_OUT, expires=settings.OPERATOR_ORDERS_S, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("an operator's order waits for the beat", error=str(error))


def find(operator_id: UUID, order_id: UUID) -> Order | None:
    """One order."""
    found = _orders(operator_id, order_id, 1)
    return found[0] if found else None


def latest(operator_id: UUID, rows_max: int) -> list[Order]:
    """The latest orders of all operators, the newest first."""
    return _orders(operator_id, None, rows_max)


def _orders(operator_id: UUID, order_id: UUID | None, rows_max: int) -> list[Order]:
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT * FROM operator_orders(%s, %s, %s)", [operator_id, order_id, rows_max]
        )
        return [
            Order(
                found_id,
                who,
                email,
                OrderKind(kind),
                json.loads(body),
                placed_at,
                ended_at,
                Outcome(outcome),
                _mapping(answer),
            )
            for found_id, who, email, kind, body, placed_at, ended_at, outcome, answer in (
                cursor.fetchall()
            )
        ]


def _mapping(answer: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(answer, str):
        loaded: Mapping[str, Any] = json.loads(answer)
        return loaded
    return answer or {}
