"""Whom documents are addressed to: personal fields, apart from the books, so that they can go.

A document keeps the address of its day in a row of its own, and a deletion removes both. Called by
views (app), by the issuing of documents and by the deletion of organizations (housekeeper).
"""

from dataclasses import asdict, fields
from uuid import UUID

from billing.contracts import BillingProfile
from billing.models import BillingProfileRow, InvoiceRecipient
from billing.models.invoices import Addressee
from tenants.contracts import Actor, Permission
from tenants.facade import record_audit, tenant_scope

HOUSEKEEPER = "housekeeper"
FIELDS = [field.name for field in fields(BillingProfile)]
CHARS_MAX = {
    "legal_name": 200,
    "address": 500,
    "email": 254,
    "tax_id": 40,
    "purchase_order": 80,
}


def profile_of(organization_id: UUID, using: str = "default") -> BillingProfile:
    """The address that the next document will bear."""
    with tenant_scope(organization_id, using):
        row = BillingProfileRow.objects.using(using).filter(organization_id=organization_id).first()
    return BillingProfile() if row is None else shown(row)


def save_profile(actor: Actor, profile: BillingProfile) -> None:
    """Address documents so from now on. Raises ValueError for a field that is too long."""
    actor.require(Permission.BILLING_WRITE)
    values = asdict(profile)
    for name, text in values.items():
        if len(text) > CHARS_MAX[name]:
            raise ValueError(f"{name} has at most {CHARS_MAX[name]} characters")
    with tenant_scope(actor.organization_id):
        BillingProfileRow.objects.bulk_create(
            [BillingProfileRow(organization_id=actor.organization_id, **values)],
            update_conflicts=True,
            unique_fields=["organization_id"],
            update_fields=FIELDS,
        )
        # What it was changed to is personal, and the log is for ever.
        record_audit(actor, "billing.profile_changed", "organization", actor.organization_id)


def forget_addresses(organization_id: UUID) -> None:
    """Remove the organization's address, and that of each of its documents; idempotent.

    The books stay.
    """
    with tenant_scope(organization_id, HOUSEKEEPER):
        for rows in (BillingProfileRow.objects, InvoiceRecipient.objects):
            rows.using(HOUSEKEEPER).filter(organization_id=organization_id).delete()


def shown(row: Addressee) -> BillingProfile:
    """The fields of either row."""
    return BillingProfile(**{name: getattr(row, name) for name in FIELDS})
