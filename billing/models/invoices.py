"""Issued documents: invoices, statements and credit notes, their lines, payments, and whom they
were addressed to.

Never changed once issued (a trigger sees to it); personal fields lie in side tables that a
deletion can empty. Used inside `billing` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import InvoiceKind, LineKind
from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"


class InvoiceRow(TenantModel):
    """A document of one period, numbered without gaps within its organization."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(ORGANIZATION, models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=16)
    corrects = models.UUIDField(null=True)
    currency = models.CharField(max_length=3)
    time_zone = models.CharField(max_length=64)
    period_start_at = models.DateTimeField()
    period_end_at = models.DateTimeField()
    usage_pico = IntegerMoneyField()
    """What usage charged, before credit: usage, corrections and what was written off."""
    exact_pico = IntegerMoneyField()
    residue_in_pico = IntegerMoneyField()
    residue_out_pico = IntegerMoneyField()
    net_pico = IntegerMoneyField()
    tax_label = models.CharField(max_length=40)
    tax_ppm = models.PositiveIntegerField()
    tax_pico = IntegerMoneyField()
    total_pico = IntegerMoneyField()
    ledger_tx_id = models.UUIDField(null=True)
    issued_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_invoice"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "number"], name="billing_invoice_number_once"
            ),
            models.UniqueConstraint(
                fields=["organization", "period_start_at"],
                condition=~models.Q(kind="credit_note"),
                name="billing_invoice_one_a_period",
            ),
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_invoice_with_tenant"
            ),
            models.CheckConstraint(
                name="billing_invoice_kind",
                condition=models.Q(kind__in=[kind.value for kind in InvoiceKind]),
            ),
            models.CheckConstraint(
                name="billing_invoice_residue",
                condition=models.Q(
                    exact_pico=models.F("net_pico")
                    + models.F("residue_out_pico")
                    - models.F("residue_in_pico")
                ),
            ),
            models.CheckConstraint(
                name="billing_invoice_total",
                condition=models.Q(total_pico=models.F("net_pico") + models.F("tax_pico")),
            ),
            models.CheckConstraint(
                name="billing_invoice_period",
                condition=models.Q(period_end_at__gt=models.F("period_start_at")),
            ),
            models.CheckConstraint(
                name="billing_invoice_corrects",
                condition=models.Q(kind="credit_note", corrects__isnull=False)
                | models.Q(~models.Q(kind="credit_note"), corrects=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class InvoiceLineRow(TenantModel):
    """One line of a document; `of_period_*` say when a correction's charges belong to."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    invoice = models.ForeignKey(
        InvoiceRow, models.PROTECT, related_name="lines", db_constraint=False, db_index=False
    )
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=16)
    model = models.CharField(max_length=128, db_default="")
    tier = models.CharField(max_length=16, db_default="")
    token_class = models.CharField(max_length=16, db_default="")
    group = models.CharField(max_length=256, db_default="")
    text = models.CharField(max_length=256, db_default="")
    tokens = models.BigIntegerField(db_default=0)
    price_micros_per_mtok = models.BigIntegerField(null=True)
    exact_pico = IntegerMoneyField()
    rounded_pico = IntegerMoneyField()
    of_period_start_at = models.DateTimeField(null=True)
    of_period_end_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_invoice_line"
        constraints = [
            models.UniqueConstraint(
                fields=["invoice", "position"], name="billing_invoice_line_position"
            ),
            models.CheckConstraint(
                name="billing_invoice_line_kind",
                condition=models.Q(kind__in=[kind.value for kind in LineKind]),
            ),
            models.CheckConstraint(
                name="billing_invoice_line_correction",
                condition=models.Q(kind="correction", of_period_start_at__isnull=False)
                | models.Q(~models.Q(kind="correction"), of_period_start_at=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position}: {self.kind} {self.rounded_pico}"


class InvoicePayment(TenantModel):
    """Money that arrived for an invoice, or, below 0, went back. Append-only."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    invoice = models.ForeignKey(
        InvoiceRow, models.PROTECT, related_name="payments", db_constraint=False
    )
    amount_pico = IntegerMoneyField()
    reference = models.CharField(max_length=100)
    ledger_tx_id = models.UUIDField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_invoice_payment"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "reference"], name="billing_payment_once"
            ),
            models.CheckConstraint(
                name="billing_payment_not_zero", condition=~models.Q(amount_pico=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount_pico} for {self.invoice_id}"


class Addressee(TenantModel):
    """Whom a document is addressed to: personal fields, which a deletion removes."""

    legal_name = models.CharField(max_length=200, db_default="")
    address = models.CharField(max_length=500, db_default="")
    email = models.CharField(max_length=254, db_default="")
    tax_id = models.CharField(max_length=40, db_default="")
    purchase_order = models.CharField(max_length=80, db_default="")

    class Meta(TenantModel.Meta):
        abstract = True


class BillingProfileRow(Addressee):
    """The organization's address now: what the next document will bear."""

    organization = models.OneToOneField(
        ORGANIZATION, models.PROTECT, primary_key=True, related_name="+"
    )

    class Meta(Addressee.Meta):
        db_table = "billing_profile"

    def __str__(self) -> str:
        return self.legal_name


class InvoiceRecipient(Addressee):
    """The address as it was when the document was issued."""

    invoice = models.OneToOneField(
        InvoiceRow, models.PROTECT, primary_key=True, related_name="+", db_constraint=False
    )
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )

    class Meta(Addressee.Meta):
        db_table = "billing_invoice_recipient"

    def __str__(self) -> str:
        return self.legal_name
