"""Closing a month: one document for each organization and period, once, and its money with it.

What a prepaid tenant's credit paid is reported in a statement; what is owed becomes an invoice and
a receivable. Never looks at a period before its grace is over, and never changes a document that
is issued. Called by the hourly task, as the housekeeper.
"""

import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import DatabaseError, connections

from billing.contracts import Invoice, InvoiceKind
from billing.credit.settings import billing_settings
from billing.invoices import gathering
from billing.invoices.composing import Composed, charged_pico, compose
from billing.invoices.issuing import Heading, call_one, issue, last_residue_pico, next_number
from billing.invoices.periods import GRACE, Period, month_of, period_after
from billing.invoices.reading import invoice
from billing.models import InvoiceRow
from billing.retry import again
from tenants.facade import tenant_scope

ORGANIZATIONS_MAX = 500
"""Organizations one run closes a period of; the rest waits for the next."""

logger = logging.getLogger(__name__)


def close_due(now: datetime | None = None, using: str = "housekeeper") -> int:
    """Close every period whose grace is over; returns how many documents were issued.

    An organization that is several periods behind gets one a run. What cannot be closed is logged
    and left for the next run: nobody's books keep another's month open.
    """
    now = now or datetime.now(UTC)
    issued = 0
    for organization_id, zone_name, last_end_at, first_at in gathering.open_periods(
        now - GRACE, ORGANIZATIONS_MAX, using
    ):
        try:
            period = next_period(zone_name, last_end_at, first_at)
            if period.closes_at() > now:
                continue
            close_period(organization_id, period, zone_name, now, using)
        except (DatabaseError, ZoneInfoNotFoundError):
            logger.exception("a period of organization %s cannot be closed", organization_id)
        else:
            issued += 1
    return issued


def next_period(zone_name: str, last_end_at: datetime | None, first_at: datetime) -> Period:
    """The period behind the last document's, or that of an organization's first entry."""
    zone = ZoneInfo(zone_name)
    return month_of(first_at, zone) if last_end_at is None else period_after(last_end_at, zone)


def close_period(
    organization_id: UUID,
    period: Period,
    zone_name: str,
    now: datetime,
    using: str = "housekeeper",
) -> Invoice:
    """Issue the document of one period, or find the one that was issued.

    Raises ValueError before the period's grace is over.
    """
    if now < period.closes_at():
        raise ValueError("the period still waits for late events")

    def once() -> UUID:
        with tenant_scope(organization_id, using):
            return _close(organization_id, period, zone_name, now, using)

    return invoice(organization_id, again(once), using)


def _close(
    organization_id: UUID, period: Period, zone_name: str, now: datetime, using: str
) -> UUID:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('billing_close:' || %s::text, 0))",
            [organization_id],
        )
    before = (
        InvoiceRow.objects.using(using)
        .filter(organization_id=organization_id, period_start_at=period.start_at)
        .exclude(kind=InvoiceKind.CREDIT_NOTE.value)
        .first()
    )
    if before is not None:
        before_id: UUID = before.id
        return before_id
    settings = billing_settings(organization_id, using)
    charges = gathering.usage_lines(organization_id, period, settings.group_lines_by, using)
    charges += gathering.correction_lines(organization_id, period, using)
    movements = gathering.movement_lines(organization_id, period, zone_name, using)
    usage_pico = charged_pico(charges)
    # From here to the commit the account is held: all that takes long is done.
    owed_pico = int(
        call_one("SELECT billing_unpaid_usage(%s, %s)", [organization_id, usage_pico], using)
    )
    is_owed = owed_pico > 0
    kind = InvoiceKind.INVOICE if is_owed else InvoiceKind.STATEMENT
    composed = compose(
        charges,
        movements,
        paid_by_credit_pico=usage_pico - owed_pico if is_owed else 0,
        residue_in_pico=last_residue_pico(organization_id, kind, using),
        tax_ppm=settings.tax_ppm if is_owed else 0,
    )
    heading = Heading(
        organization_id=organization_id,
        number=next_number(organization_id, using),
        kind=kind,
        zone_name=zone_name,
        period=period,
        tax_label=settings.tax_label if is_owed else "",
        tax_ppm=settings.tax_ppm if is_owed else 0,
        issued_at=now,
        due_at=now + timedelta(days=settings.payment_days) if is_owed else None,
    )
    tx_id = _post(heading, composed, using) if is_owed else None
    return issue(heading, composed, tx_id, using)


def _post(heading: Heading, composed: Composed, using: str) -> UUID:
    tx_id: UUID = call_one(
        "SELECT billing_post_invoice(%s, %s, %s, %s, %s)",
        [
            heading.organization_id,
            heading.number,
            composed.sums.exact_pico,
            composed.sums.net_pico,
            composed.tax_pico,
        ],
        using,
    )
    return tx_id
