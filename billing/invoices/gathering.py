"""What a document is made of: usage of its period, what came late for earlier ones, movements.

Reads only. Called by the closing of invoices, as the housekeeper, inside its transaction.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections

from billing.contracts import InvoiceLine, LineKind
from billing.invoices.composing import line
from billing.invoices.periods import SHORTEST, Period

LINES_MAX = 2_000
"""Past so many groups the lines of a document are not grouped: a tag may have any value."""
LOOK_BACK_DOCUMENTS = 3
"""How many documents back a late event still becomes a correction."""
MOVEMENTS = {
    "top_up": LineKind.TOP_UP,
    "grant": LineKind.GRANT,
    "expiry": LineKind.EXPIRED,
    "refund": LineKind.REFUND,
}
REPRICED = "repriced"


def usage_lines(
    organization_id: UUID, period: Period, group_lines_by: str, using: str
) -> list[InvoiceLine]:
    """The period's usage by model, tier, class, unit price and group."""
    span = [organization_id, period.start_at, period.end_at]
    rows = _rows(
        "SELECT * FROM billing_usage_lines(%s, %s, %s, %s)", [*span, group_lines_by], using
    )
    if len(rows) > LINES_MAX:
        rows = _rows("SELECT * FROM billing_usage_lines(%s, %s, %s, '')", span, using)
    return [
        line(
            LineKind.USAGE if token_class else LineKind.WRITTEN_OFF,
            int(exact),
            model=model,
            tier=tier,
            token_class=token_class,
            group=group[:256],
            tokens=int(tokens),
            price_micros_per_mtok=micros,
        )
        # What was written off comes behind what it was taken off.
        for model, tier, token_class, micros, group, tokens, exact in sorted(
            rows, key=lambda row: row[2] == ""
        )
    ]


def correction_lines(organization_id: UUID, period: Period, using: str) -> list[InvoiceLine]:
    """What came late for earlier periods, and what the operator corrected in this one."""
    late = _rows(
        "SELECT * FROM billing_late_usage(%s, %s)", [organization_id, LOOK_BACK_DOCUMENTS], using
    )
    repriced = _rows(
        "SELECT * FROM billing_repriced_lines(%s, %s, %s)",
        [organization_id, period.start_at, period.end_at],
        using,
    )
    return [
        line(
            LineKind.CORRECTION,
            int(exact),
            model=model,
            tier=tier,
            token_class=token_class,
            tokens=int(tokens),
            price_micros_per_mtok=micros,
            of_period=(start_at, end_at),
            text="late",
        )
        for start_at, end_at, model, tier, token_class, micros, tokens, exact in late
    ] + [
        line(
            LineKind.CORRECTION,
            int(exact),
            model=model,
            tier=tier,
            token_class=REPRICED,
            of_period=(start_at, end_at),
            text="price corrected",
        )
        for start_at, end_at, model, tier, exact in repriced
    ]


def movement_lines(
    organization_id: UUID, period: Period, zone_name: str, using: str
) -> list[InvoiceLine]:
    """Credit that came and went in the period otherwise than by usage, by day."""
    rows = _rows(
        "SELECT * FROM billing_credit_movements(%s, %s, %s, %s)",
        [organization_id, period.start_at, period.end_at, zone_name],
        using,
    )
    return [line(MOVEMENTS[kind], int(exact), text=day.isoformat()) for kind, day, exact in rows]


def open_periods(
    before: datetime, organizations_max: int, using: str
) -> list[tuple[UUID, str, datetime | None, datetime]]:
    """Organizations whose next period can have ended by `before`: zone, last end, first entry."""
    return _rows(
        "SELECT * FROM billing_periods_open(%s, %s, %s)",
        [before, SHORTEST, organizations_max],
        using,
    )


def _rows(sql: str, parameters: list[Any], using: str) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
