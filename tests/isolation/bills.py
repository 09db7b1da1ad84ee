"""A tenant's bills, so that the tables of money have rows to be hidden."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connections

from billing.contracts import PICO, BillingProfile, UsageCounts
from billing.facade import record_payment, save_billing_settings, save_profile, settle
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from tenants.facade import operator_of, tenant_scope
from tests.billing.cast import Tenant, used

CENT_PICO = PICO // 100


def leave_a_bill(tenant: Tenant) -> None:
    """An invoice in part paid, an address, settings, and a top-up that waits."""
    organization_id = tenant.organization_id
    dear = tenant.with_prices(CENT_PICO, CENT_PICO, CENT_PICO)
    settle([used(dear.held(3, 0), UsageCounts(3, 0, 0))])
    save_profile(operator_of(organization_id), BillingProfile(legal_name="Ann"))
    save_billing_settings(operator_of(organization_id), 1, "")
    now = datetime.now(UTC)
    month = month_of(now, ZoneInfo("UTC"))
    document = close_period(organization_id, month, "UTC", now + timedelta(days=40))
    record_payment(organization_id, document.invoice_id, CENT_PICO, "first")
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (uuidv7(), %s, %s, 'USD', 'first')",
            [organization_id, PICO],
        )
