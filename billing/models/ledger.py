"""A tenant's money: its ledger accounts, balanced transactions, and the balance they come to.

Append-only, but for the balance; the SQL functions of sql/ write it. Used inside `billing` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"


class LedgerKind(models.TextChoices):
    """The accounts every tenant has. The sign is the tenant's: a positive credit leg tops up."""

    CREDIT = "credit"
    CASH = "cash"
    RECEIVABLE = "receivable"
    REVENUE = "revenue"
    PROMO = "promo"
    WRITE_OFF = "write_off"
    ROUNDING = "rounding"
    TAX = "tax"
    EXPIRED = "expired"


class LedgerAccount(TenantModel):
    """One account of one tenant; platform totals are sums, never a shared row."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(ORGANIZATION, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=LedgerKind.choices)
    currency = models.CharField(max_length=3)

    class Meta(TenantModel.Meta):
        db_table = "billing_ledger_account"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "kind"], name="billing_ledger_account_kind"
            ),
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_ledger_account_with_tenant"
            ),
            models.CheckConstraint(
                name="billing_ledger_account_known_kind",
                condition=models.Q(kind__in=LedgerKind.values),
            ),
        ]

    def __str__(self) -> str:
        return self.kind


class Account(TenantModel):
    """A tenant's spendable balance: the projection of its `credit` ledger account."""

    ledger_account = models.OneToOneField(
        LedgerAccount, on_delete=models.PROTECT, primary_key=True, related_name="+"
    )
    organization = models.OneToOneField(ORGANIZATION, on_delete=models.PROTECT, related_name="+")
    currency = models.CharField(max_length=3)
    posted_pico = IntegerMoneyField(default=0)
    held_pico = IntegerMoneyField(default=0)
    floor_pico = IntegerMoneyField(default=0)
    # All that came and went otherwise than by usage, so that `funded - posted` is what usage has
    # charged: settling, the hot path, keeps no second sum.
    funded_pico = IntegerMoneyField(default=0)
    # Of what usage has charged, the part that grants and invoices have paid for.
    burned_pico = IntegerMoneyField(default=0)
    # Of grants that are over or went back, what open holds still reserve: no new hold may.
    leaving_pico = IntegerMoneyField(db_default=0)
    quota_version = models.BigIntegerField(db_default=0)
    """Counts changes of the tenant's quotas: a hold or settle that began by others is run again."""

    class Meta(TenantModel.Meta):
        db_table = "billing_account"
        constraints = [
            models.CheckConstraint(
                name="billing_account_above_floor",
                condition=models.Q(
                    posted_pico__gte=models.F("floor_pico") + models.F("held_pico"),
                ),
            ),
            models.CheckConstraint(
                name="billing_account_held_not_negative", condition=models.Q(held_pico__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.posted_pico} - {self.held_pico}"


class LedgerTransaction(TenantModel):
    """A group of legs that sums to zero. Never changed; a reversal is a new one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    idempotency_key = models.CharField(max_length=128)
    kind = models.CharField(max_length=16)
    reverses = models.UUIDField(null=True)
    """The transaction that this one takes back, all or in part."""
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_ledger_tx"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "idempotency_key"], name="billing_ledger_tx_once"
            ),
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_ledger_tx_with_tenant"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class LedgerLegRow(TenantModel):
    """A signed entry; composite foreign keys keep it inside its tenant."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    transaction = models.ForeignKey(
        LedgerTransaction, on_delete=models.PROTECT, related_name="legs", db_constraint=False
    )
    account = models.ForeignKey(
        LedgerAccount, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    amount_pico = IntegerMoneyField()

    class Meta(TenantModel.Meta):
        db_table = "billing_ledger_leg"
        constraints = [
            models.CheckConstraint(
                name="billing_ledger_leg_not_zero", condition=~models.Q(amount_pico=0)
            )
        ]

    def __str__(self) -> str:
        return str(self.amount_pico)
