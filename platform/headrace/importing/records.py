"""LiteLLM's rows, made sense of: typed values out of JSON or of COPY's text.

Pure. Whatever is missing or malformed reads as absent; `plan` decides what that means.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from billing.contracts import PICO, QuotaPeriod
from headrace.importing.source import Row
from tenants.contracts import MinuteLimits

DAY = frozenset({"1d", "24h", "daily", "1day"})
MONTH = frozenset({"1mo", "30d", "31d", "monthly", "1month"})
BUDGET_MAX = 10**15
"""Of the currency's units: a larger number is a slip."""
LIMIT_MAX = 2**31 - 1
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent in a period; `period` is None for one that we do not know."""

    max_pico: int | None
    soft_pico: int | None
    duration: str
    period: QuotaPeriod | None
    limits: MinuteLimits


def text(row: Row, name: str) -> str:
    """A text, or ''."""
    value = row.get(name)
    return value.strip() if isinstance(value, str) else ""


def texts(row: Row, name: str) -> tuple[str, ...]:
    """A list of texts: JSON's, or PostgreSQL's `{a,b}`."""
    value = row.get(name)
    if isinstance(value, str):
        if value.startswith("{") and value.endswith("}"):
            inner = value[1:-1]
            value = next(csv.reader([inner], escapechar="\\")) if inner else []
        else:
            value = _decoded(value)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def mapping(row: Row, name: str) -> Mapping[str, Any]:
    """A JSON object, or {}."""
    value = _decoded(row.get(name))
    return value if isinstance(value, dict) else {}


def objects(row: Row, name: str) -> Sequence[Mapping[str, Any]]:
    """A JSON list of objects, or []."""
    value = _decoded(row.get(name))
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def flag(row: Row, name: str) -> bool:
    """A boolean; absent is false."""
    return row.get(name) in (True, "t", "true", "True", "1")


def whole(row: Row, name: str) -> int | None:
    """A count that fits our limits, or None: none, negative, or beyond all bounds."""
    amount = _number(row.get(name))
    if amount is None or amount != int(amount) or not 0 <= amount <= LIMIT_MAX:
        return None
    return int(amount)


def moment(row: Row, name: str) -> datetime | None:
    """A time; LiteLLM's columns are UTC without saying so."""
    value = text(row, name)
    try:
        read = datetime.fromisoformat(value) if value else None
    except ValueError:
        return None
    return read if read is None or read.tzinfo else read.replace(tzinfo=UTC)


def key_hash(row: Row) -> bytes | None:
    """The SHA-256 of a key's secret; None for a token that is stored otherwise."""
    token = text(row, "token")
    return bytes.fromhex(token) if _HASH.fullmatch(token) else None


def limits(row: Row) -> MinuteLimits:
    """Requests and tokens a minute, and at once."""
    return MinuteLimits(
        requests_max=whole(row, "rpm_limit"),
        tokens_max=whole(row, "tpm_limit"),
        concurrent_max=whole(row, "max_parallel_requests"),
    )


def budget(row: Row) -> Budget:
    """The budget that the row itself has, or is."""
    duration = text(row, "budget_duration")
    period = (
        QuotaPeriod.DAY if duration in DAY else QuotaPeriod.MONTH if duration in MONTH else None
    )
    return Budget(
        _pico(row.get("max_budget")), _pico(row.get("soft_budget")), duration, period, limits(row)
    )


def _pico(value: Any) -> int | None:
    """Exact to the last pico-unit, rounded down beyond it."""
    amount = _number(value)
    return None if amount is None or not 0 <= amount <= BUDGET_MAX else int(amount * PICO)


def _number(value: Any) -> Decimal | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(value) if isinstance(value, str | int | Decimal) else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_float=Decimal)
    except ValueError:
        return None
