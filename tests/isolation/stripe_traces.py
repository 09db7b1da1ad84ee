"""A row of a tenant in each of Stripe's tables, as payments and exports leave them."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.db import connections

from billing.contracts import PICO
from billing.retry import call
from billing.stripe_sync.exports import PLAN
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant


def leave_stripe_traces(tenant: Tenant) -> None:
    """A customer, a page, an event about it, a message Stripe never signed, an hour for a meter."""
    organization_id, top_up_id, mark = tenant.organization_id, uuid4(), uuid4().hex
    with tenant_scope(organization_id), connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (%s, %s, %s, 'USD', 'by stripe')",
            [top_up_id, organization_id, PICO],
        )
        cursor.execute(
            "INSERT INTO billing_stripe_account (organization_id, customer_id) VALUES (%s, %s)",
            [organization_id, f"cus_{mark}"],
        )
        cursor.execute(
            "INSERT INTO billing_stripe_checkout (top_up_id, organization_id, session_id, url,"
            " expires_at) VALUES (%s, %s, %s, '', now())",
            [top_up_id, organization_id, f"cs_{mark}"],
        )
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT billing_stripe_apply(%s, 'checkout.session.expired', now(), %s, %s, %s,"
            " 'fail', '', 'usd', 0, 0, 'expired', '')",
            [f"evt_{mark}", organization_id, f"cus_{mark}", top_up_id],
        )
        assert cursor.fetchall() == [("applied",)]
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_stripe_message (body, signature) VALUES ('', %s)",
            [str(organization_id)],
        )
    until = datetime.now(UTC) + timedelta(hours=1)
    since = until - timedelta(hours=3)
    call(PLAN, [since, until, since, until], "housekeeper")
