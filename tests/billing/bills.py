"""What tests of documents start from: usage by the cent, tenants who may owe, closed months."""

import io
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connections
from pypdf import PdfReader

from billing.contracts import (
    PICO,
    Invoice,
    UsageCounts,
)
from billing.facade import (
    close_due,
    invoice,
    invoice_pdf,
    invoices,
    set_credit_limit,
    settle,
)
from billing.invoices.closing import close_period
from billing.invoices.periods import Period, month_of
from tests.billing.cast import Tenant, make_tenant, used

CENT = PICO // 100
DAY = timedelta(days=1)


def spend(tenant: Tenant, amount_pico: int) -> None:
    """Use tokens that cost this much, at one pico-unit each."""
    [settled] = settle([used(tenant.held(amount_pico, 0), UsageCounts(amount_pico, 0, 0))])
    assert settled.charge_pico == amount_pico


def closed(tenant: Tenant, months: int = 1) -> Invoice:
    """Close the tenant's next period, so many months from now; its document."""
    before = len(invoices(tenant.organization_id))
    close_due(datetime.now(UTC) + months * 33 * DAY)
    documents = invoices(tenant.organization_id)
    assert len(documents) == before + 1
    return invoice(tenant.organization_id, documents[0].invoice_id)


def legs(tenant: Tenant) -> dict[str, int]:
    """The sum of each of the tenant's ledger accounts."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT a.kind, coalesce(sum(l.amount_pico), 0) FROM billing_ledger_account a"
            " LEFT JOIN billing_ledger_leg l ON l.account_id = a.id"
            " WHERE a.organization_id = %s GROUP BY a.kind",
            [tenant.organization_id],
        )
        return {str(kind): int(amount) for kind, amount in cursor.fetchall() if amount}


def postpaid(credit_pico: int = 0) -> Tenant:
    """A tenant who may owe 100."""
    tenant = make_tenant(credit_pico=credit_pico)
    set_credit_limit(tenant.organization_id, 100 * PICO)
    return tenant


def month() -> Period:
    """This month of UTC."""
    return month_of(datetime.now(UTC), ZoneInfo("UTC"))


def close(tenant: Tenant, period: Period, zone: str = "UTC") -> Invoice:
    """The tenant's document of a period, as of when its grace is over."""
    return close_period(tenant.organization_id, period, zone, period.closes_at())


def read(document: Invoice, issuer: str = "Headrace\nDam 1") -> str:
    """The text of the paper."""
    pages = PdfReader(io.BytesIO(invoice_pdf(document, issuer))).pages
    return "\n".join(page.extract_text() for page in pages)
