"""The tables of money: catalog, accounts, ledger, holds, usage events, quotas.

Constraints here and in sql/ hold the invariants; writing happens in the SQL functions there, since
role `app` may only read most of these. Used inside `billing` only.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import ServiceTier, UsageSource
from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"
TIERS = [tier.value for tier in ServiceTier]
SOURCES = [source.value for source in UsageSource]


class TokenClass(models.TextChoices):
    """What a token is sold as."""

    INPUT = "input"
    CACHED_INPUT = "cached_input"
    OUTPUT = "output"


class LedgerKind(models.TextChoices):
    """The accounts every tenant has. The sign is the tenant's: a positive credit leg tops up."""

    CREDIT = "credit"
    REVENUE = "revenue"
    PROMO = "promo"
    WRITE_OFF = "write_off"


class HoldState(models.TextChoices):
    """The way out of `open` is the exactly-once gate."""

    OPEN = "open"
    POSTED = "posted"
    VOIDED = "voided"


class OfferRow(models.Model):
    """A model for sale, of the operator's one catalog. Renaming never touches past receipts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    public_id = models.CharField(max_length=128, unique=True)
    display_name = models.CharField(max_length=128)
    owned_by = models.CharField(max_length=64)
    context_tokens_max = models.PositiveIntegerField()
    output_tokens_max = models.PositiveIntegerField()
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_offer"

    def __str__(self) -> str:
        return self.public_id


class Price(models.Model):
    """One unit price over one span of time. Immutable, but for closing an open span."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    offer = models.ForeignKey(OfferRow, on_delete=models.PROTECT, related_name="prices")
    tier = models.CharField(max_length=16)
    token_class = models.CharField(max_length=16, choices=TokenClass.choices)
    currency = models.CharField(max_length=3)
    price_micros_per_mtok = models.BigIntegerField()
    valid = DateTimeRangeField()

    class Meta:
        db_table = "billing_price"
        constraints = [
            models.CheckConstraint(
                name="billing_price_known_tier", condition=models.Q(tier__in=TIERS)
            ),
            models.CheckConstraint(
                name="billing_price_known_class",
                condition=models.Q(token_class__in=TokenClass.values),
            ),
            models.CheckConstraint(
                name="billing_price_not_negative",
                condition=models.Q(price_micros_per_mtok__gte=0),
            ),
            ExclusionConstraint(
                name="billing_price_one_at_a_time",
                expressions=[
                    ("offer", RangeOperators.EQUAL),
                    ("tier", RangeOperators.EQUAL),
                    ("token_class", RangeOperators.EQUAL),
                    ("currency", RangeOperators.EQUAL),
                    ("valid", RangeOperators.OVERLAPS),
                ],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.token_class} {self.price_micros_per_mtok} ({self.tier})"


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


class QuotaPolicy(TenantModel):
    """A tenant's limit of tokens per UTC day; null is no limit and no counting."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.OneToOneField(ORGANIZATION, on_delete=models.PROTECT, related_name="+")
    daily_tokens_max = models.BigIntegerField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_quota_policy"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_quota_policy_with_tenant"
            ),
            models.CheckConstraint(
                name="billing_quota_policy_not_negative",
                condition=models.Q(daily_tokens_max__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.daily_tokens_max} tokens a day"


class QuotaCounter(TenantModel):
    """What one window of a policy has used and holds."""

    pk = models.CompositePrimaryKey("policy", "window_start")
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    policy = models.ForeignKey(
        QuotaPolicy, models.PROTECT, related_name="counters", db_constraint=False, db_index=False
    )
    window_start = models.DateTimeField()
    used_tokens = models.BigIntegerField(default=0)
    held_tokens = models.BigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        db_table = "billing_quota_counter"
        constraints = [
            models.CheckConstraint(
                name="billing_quota_counter_not_negative",
                condition=models.Q(used_tokens__gte=0, held_tokens__gte=0),
            )
        ]

    def __str__(self) -> str:
        return f"{self.used_tokens} + {self.held_tokens} since {self.window_start}"


class Hold(TenantModel):
    """Money and quota reserved for one request, with the prices it was sold at."""

    id = models.UUIDField(primary_key=True)
    # Composite foreign keys in sql/ are the constraints of these.
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    project = models.ForeignKey(
        "tenants.Project", models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    key = models.ForeignKey(
        "tenants.ApiKey", models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    account_id = models.UUIDField()
    state = models.CharField(
        max_length=8, choices=HoldState.choices, db_default=HoldState.OPEN.value
    )
    tier = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    model_asked = models.CharField(max_length=128)
    # Snapshot, not references: a foreign key would lock the same three price rows, and the
    # account's, for every request of every tenant. Neither is ever deleted.
    input_price_id = models.UUIDField()
    cached_input_price_id = models.UUIDField()
    output_price_id = models.UUIDField()
    input_micros_per_mtok = models.BigIntegerField()
    cached_input_micros_per_mtok = models.BigIntegerField()
    output_micros_per_mtok = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    output_tokens_max = models.BigIntegerField()
    amount_pico = IntegerMoneyField()
    charge_pico = IntegerMoneyField(db_default=0)
    used_tokens = models.BigIntegerField(db_default=0)
    quota_policy_id = models.UUIDField(null=True)
    quota_window_start = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    renewed_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_hold"

    def __str__(self) -> str:
        return f"{self.state} {self.amount_pico}"


class UsageEvent(TenantModel):
    """What one request used and was charged: append-only, partitioned by month of `occurred_at`."""

    pk = models.CompositePrimaryKey("occurred_at", "request_id")
    occurred_at = models.DateTimeField()
    request_id = models.UUIDField()
    organization_id = models.UUIDField()
    project_id = models.UUIDField()
    key_id = models.UUIDField()
    ledger_tx_id = models.UUIDField()
    held_at = models.DateTimeField()
    tier = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    model_asked = models.CharField(max_length=128)
    model_served = models.CharField(max_length=128)
    uncached_input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    input_price_id = models.UUIDField()
    cached_input_price_id = models.UUIDField()
    output_price_id = models.UUIDField()
    input_micros_per_mtok = models.BigIntegerField()
    cached_input_micros_per_mtok = models.BigIntegerField()
    output_micros_per_mtok = models.BigIntegerField()
    cost_pico = IntegerMoneyField()
    charge_pico = IntegerMoneyField()
    finish_reason = models.CharField(max_length=32)
    source = models.CharField(max_length=16)
    queue_ms = models.BigIntegerField()
    prefill_ms = models.BigIntegerField()
    decode_ms = models.BigIntegerField()

    class Meta(TenantModel.Meta):
        db_table = "billing_usage_event"

    def __str__(self) -> str:
        return f"{self.request_id}: {self.charge_pico}"
