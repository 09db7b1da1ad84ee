"""Credit by its sources: grants, what burned them, top-ups, and a tenant's billing settings.

The SQL functions of sql/0006_credit.sql move the money; role `app` begins top-ups and saves
settings. Used inside `billing` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import GrantCategory, TopUpState
from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"
GRANT_CATEGORIES = [category.value for category in GrantCategory]
TOP_UP_STATES = [state.value for state in TopUpState]


class CreditGrantRow(TenantModel):
    """Credit of one source. `remaining_pico` is what nothing has burned yet."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    source = models.CharField(max_length=140)
    category = models.CharField(max_length=16)
    priority = models.SmallIntegerField()
    amount_pico = IntegerMoneyField()
    remaining_pico = IntegerMoneyField()
    leaving_pico = IntegerMoneyField(db_default=0)
    """Of what remains, the part that goes once no open hold reserves it: ended or paid back."""
    effective_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    posted_at = models.DateTimeField(null=True)
    ledger_tx_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_credit_grant"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "source"], name="billing_credit_grant_source_once"
            ),
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_credit_grant_with_tenant"
            ),
            models.CheckConstraint(
                name="billing_credit_grant_category",
                condition=models.Q(category__in=GRANT_CATEGORIES),
            ),
            models.CheckConstraint(
                name="billing_credit_grant_remaining",
                condition=models.Q(
                    amount_pico__gt=0,
                    remaining_pico__gte=0,
                    remaining_pico__lte=models.F("amount_pico"),
                ),
            ),
            models.CheckConstraint(
                name="billing_credit_grant_leaving",
                condition=models.Q(
                    leaving_pico__gte=0, leaving_pico__lte=models.F("remaining_pico")
                ),
            ),
            models.CheckConstraint(
                name="billing_credit_grant_lives",
                condition=models.Q(expires_at=None)
                | models.Q(expires_at__gt=models.F("effective_at")),
            ),
            models.CheckConstraint(
                name="billing_credit_grant_posted",
                condition=models.Q(posted_at=None, ledger_tx_id=None)
                | models.Q(posted_at__isnull=False, ledger_tx_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.remaining_pico} of {self.amount_pico}"


class GrantBurn(TenantModel):
    """What a grant gave: to usage, to its expiry or back to whom it came from. Append-only."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    grant = models.ForeignKey(
        CreditGrantRow, models.PROTECT, related_name="burns", db_constraint=False
    )
    kind = models.CharField(max_length=16)
    amount_pico = IntegerMoneyField()
    ledger_tx_id = models.UUIDField(null=True)
    """Of an expiry or refund; usage has posted its own."""
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_grant_burn"
        constraints = [
            models.CheckConstraint(
                name="billing_grant_burn_positive", condition=models.Q(amount_pico__gt=0)
            ),
            models.CheckConstraint(
                name="billing_grant_burn_kind",
                condition=models.Q(kind="usage", ledger_tx_id=None)
                | models.Q(kind__in=["expired", "refunded"], ledger_tx_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount_pico}"


class TopUpRow(TenantModel):
    """Money a tenant pays in; its success posts cash to credit once."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    amount_pico = IntegerMoneyField()
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=16, db_default=TopUpState.PENDING.value)
    is_recharge = models.BooleanField(db_default=False)
    idempotency_key = models.CharField(max_length=255)
    payment_reference = models.CharField(max_length=255, db_default="")
    refunded_pico = IntegerMoneyField(db_default=0)
    failure = models.CharField(max_length=200, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    completed_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_top_up"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "idempotency_key"], name="billing_top_up_once"
            ),
            models.UniqueConstraint(
                fields=["payment_reference"],
                condition=~models.Q(payment_reference=""),
                name="billing_top_up_payment_once",
            ),
            models.UniqueConstraint(
                fields=["organization"],
                condition=models.Q(is_recharge=True, state="pending"),
                name="billing_top_up_one_open_recharge",
            ),
            models.CheckConstraint(
                name="billing_top_up_state", condition=models.Q(state__in=TOP_UP_STATES)
            ),
            models.CheckConstraint(
                name="billing_top_up_amounts",
                condition=models.Q(
                    amount_pico__gt=0,
                    refunded_pico__gte=0,
                    refunded_pico__lte=models.F("amount_pico"),
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.state} {self.amount_pico}"


class BillingSettingsRow(TenantModel):
    """How a tenant is warned, recharged and invoiced; without a row, the defaults."""

    organization = models.OneToOneField(
        ORGANIZATION, models.PROTECT, primary_key=True, related_name="+"
    )
    low_balance_pico = IntegerMoneyField(null=True)  # type: ignore[misc]  # int unless told so
    low_since_at = models.DateTimeField(null=True)
    recharge_is_enabled = models.BooleanField(db_default=False)
    recharge_threshold_pico = IntegerMoneyField(db_default=0)
    recharge_amount_pico = IntegerMoneyField(db_default=0)
    recharge_month_max_pico = IntegerMoneyField(db_default=0)
    recharge_failures = models.PositiveSmallIntegerField(db_default=0)
    recharge_not_before_at = models.DateTimeField(null=True)
    group_lines_by = models.CharField(max_length=80, db_default="")
    tax_label = models.CharField(max_length=40, db_default="")
    tax_ppm = models.PositiveIntegerField(db_default=0)
    payment_days = models.PositiveSmallIntegerField(db_default=14)

    class Meta(TenantModel.Meta):
        db_table = "billing_settings"
        constraints = [
            models.CheckConstraint(
                name="billing_settings_recharge",
                condition=models.Q(recharge_is_enabled=False)
                | models.Q(
                    recharge_amount_pico__gt=0,
                    recharge_month_max_pico__gte=models.F("recharge_amount_pico"),
                ),
            ),
            models.CheckConstraint(
                name="billing_settings_tax", condition=models.Q(tax_ppm__lte=1_000_000)
            ),
        ]

    def __str__(self) -> str:
        return f"settings of {self.organization_id}"
