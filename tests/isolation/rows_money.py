"""Rows of balance, credits, top-ups and documents."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.db import connections

import tenants.facade
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from tests.isolation.matrix import (
    TENANT,
    Act,
    Arguments,
    Row,
    T,
)
from tests.isolation.sides import Side


def document(side: Side) -> Arguments:
    """The side's document of this month, as of the next."""
    now = datetime.now(UTC)
    period = month_of(now, ZoneInfo("UTC"))
    issued = close_period(side.organization_id, period, "UTC", now + timedelta(days=40))
    return {"invoice_id": issued.invoice_id}


def waiting_top_up(side: Side) -> Arguments:
    """A top-up that waits for its payment."""
    top_up_id = uuid4()
    with (
        tenants.facade.tenant_scope(side.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (%s, %s, 20000000000000, 'USD', %s)",
            [top_up_id, side.organization_id, top_up_id.hex],
        )
    return {"top_up_id": top_up_id}


BILLING_ROWS = {
    T + "billing": Row(TENANT, {"GET": Act()}),
    T + "billing/settings": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"legal_name": "Acme", "low_balance": "5"})}
    ),
    T + "billing/recharge": Row(
        TENANT,
        {
            "GET": Act(),
            "PUT": Act({"enabled": False, "threshold": "0", "amount": "0", "month_max": "0"}),
        },
    ),
    T + "credits": Row(TENANT, {"GET": Act()}),
    # Nobody takes payments here: what is let through is told so.
    T + "topups": Row(
        TENANT,
        {
            "GET": Act(),
            "POST": Act({"amount": "20"}, 503, headers={"idempotency-key": "matrix"}),
        },
    ),
    T + "topups/<uuid:top_up_id>": Row(TENANT, {"GET": Act()}, own=waiting_top_up),
    T + "invoices": Row(TENANT, {"GET": Act()}),
    T + "invoices/<uuid:invoice_id>": Row(TENANT, {"GET": Act()}, own=document),
    T + "invoices/<uuid:invoice_id>.pdf": Row(TENANT, {"GET": Act()}, own=document),
}
