"""One customer per organization, made when first needed. Never holds names or addresses.

The key of the call is the organization's id, so a crash before the row is written finds the same
customer again. Called by payments (app, housekeeper) and exports (housekeeper).
"""

from uuid import UUID

from django.db import connections

from billing.models import StripeAccount
from billing.stripe_sync.effects import ORGANIZATION_KEY
from tenants.facade import tenant_scope

NOTE_CUSTOMER = """
    INSERT INTO billing_stripe_account (organization_id, customer_id) VALUES (%s, %s)
    ON CONFLICT (organization_id) DO UPDATE SET customer_id = excluded.customer_id
     WHERE billing_stripe_account.customer_id = ''"""
"""Of two at once, the first one's stands."""
KEEP_OUT = """
    INSERT INTO billing_stripe_account (organization_id, is_demo) VALUES (%s, true)
    ON CONFLICT (organization_id) DO UPDATE SET is_demo = true"""


def ensure_customer(organization_id: UUID, using: str) -> str:
    """The organization's customer id. Raises stripe.StripeError when Stripe is away."""
    from billing.stripe_sync.client import stripe_client

    known = _known(organization_id, using)
    if known:
        return known
    made = stripe_client().v1.customers.create(
        {"metadata": {ORGANIZATION_KEY: str(organization_id)}},
        {"idempotency_key": f"customer-{organization_id}"},
    )
    with tenant_scope(organization_id, using), connections[using].cursor() as cursor:
        cursor.execute(NOTE_CUSTOMER, [organization_id, made.id])
    return _known(organization_id, using)


def card_on_file(organization_id: UUID, using: str) -> str:
    """The payment method that a recharge is taken from; empty if there is none."""
    return _account(organization_id, using).payment_method_id


def keep_out(organization_id: UUID, using: str = "housekeeper") -> None:
    """Never export this organization's usage: it is there to be shown."""
    with tenant_scope(organization_id, using), connections[using].cursor() as cursor:
        cursor.execute(KEEP_OUT, [organization_id])


def is_demo(organization_id: UUID, using: str = "default") -> bool:
    """Whether it was kept out: its usage is made up or given away, and pages say so."""
    return _account(organization_id, using).is_demo


def _known(organization_id: UUID, using: str) -> str:
    return _account(organization_id, using).customer_id


def _account(organization_id: UUID, using: str) -> StripeAccount:
    with tenant_scope(organization_id, using):
        row = StripeAccount.objects.using(using).filter(organization_id=organization_id).first()
    return row or StripeAccount(
        organization_id=organization_id, customer_id="", payment_method_id="", is_demo=False
    )
