"""An order of the operator's, and how it is signed.

The web process signs with a key that is not in the database, so that SQL which got into it can
place nothing that a worker would carry out. Pure but for that key. Called by both sides.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.utils.crypto import constant_time_compare, salted_hmac

PURPOSE = "headrace.operator_console.orders"


class OrderKind(StrEnum):
    """What a worker does for an operator."""

    GRANT_CREDIT = "grant_credit"
    SET_CREDIT_LIMIT = "set_credit_limit"
    SET_MINUTE_LIMITS = "set_minute_limits"
    SET_STATUS = "set_status"
    PREVIEW_PRICES = "preview_prices"
    PUBLISH_PRICES = "publish_prices"
    SET_OFFER_LIFE = "set_offer_life"


class Outcome(StrEnum):
    """How an order stands."""

    WAITING = ""
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Placed:
    """An order as it was placed: everything that is signed. `body` is JSON."""

    order_id: UUID
    operator_id: UUID
    ip: str
    request_id: UUID | None
    kind: str
    body: str

    @property
    def asked(self) -> dict[str, Any]:
        """What the body says."""
        asked: dict[str, Any] = json.loads(self.body)
        return asked


@dataclass(frozen=True, slots=True)
class Order:
    """An order as pages show it."""

    order_id: UUID
    operator_id: UUID
    operator_email: str
    kind: OrderKind
    asked: Mapping[str, Any]
    placed_at: datetime
    ended_at: datetime | None
    outcome: Outcome
    answer: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What came of it, in a sentence."""
        return str(self.answer.get("text", ""))


def signature(order: Placed) -> bytes:
    """What the web process puts beside it."""
    parts = [order.order_id, order.operator_id, order.ip, order.request_id, order.kind, order.body]
    message = json.dumps([None if part is None else str(part) for part in parts])
    return salted_hmac(PURPOSE, message, algorithm="sha256").digest()


def is_signed(order: Placed, signed: bytes) -> bool:
    """Whether the web process placed exactly this."""
    return constant_time_compare(signature(order), signed)
