"""What requests reserve and use: holds, usage events, and the quotas that bound them.

The SQL functions of sql/ write these, but for the policies. Used inside `billing` only.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import END_USER_LENGTH_MAX, QuotaMetric, QuotaPeriod, QuotaScope
from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"


class HoldState(models.TextChoices):
    """The way out of `open` is the exactly-once gate."""

    OPEN = "open"
    POSTED = "posted"
    VOIDED = "voided"


class QuotaPolicy(TenantModel):
    """One limit per local day or month. Only its amount and whom it tells ever change: another
    policy takes its place for anything else, so a counter means one thing."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        ORGANIZATION, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    scope = models.CharField(max_length=16)
    scope_id = models.UUIDField(null=True)
    end_user = models.CharField(max_length=END_USER_LENGTH_MAX)
    """Of scope end_user: '' is each of them."""
    metric = models.CharField(max_length=16)
    period = models.CharField(max_length=8)
    time_zone = models.CharField(max_length=64)
    limit_amount = IntegerMoneyField()
    """Requests or tokens, or pico-units for spend."""
    is_hard = models.BooleanField()
    counts_cached = models.BooleanField()
    recipients = ArrayField(models.CharField(max_length=254))
    subject_prefix = models.CharField(max_length=64)
    set_at = models.DateTimeField()
    set_by_kind = models.CharField(max_length=16)
    set_by_id = models.UUIDField(null=True)
    lifted_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "billing_quota_policy"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_quota_policy_with_tenant"
            ),
            models.UniqueConstraint(
                fields=["organization", "scope", "scope_id", "end_user", "metric", "period"],
                condition=models.Q(is_hard=True, lifted_at=None),
                nulls_distinct=False,
                name="billing_quota_policy_one_hard",
            ),
            models.UniqueConstraint(
                fields=[
                    "organization",
                    "scope",
                    "scope_id",
                    "end_user",
                    "metric",
                    "period",
                    "limit_amount",
                ],
                condition=models.Q(is_hard=False, lifted_at=None),
                nulls_distinct=False,
                name="billing_quota_policy_soft_apart",
            ),
            models.CheckConstraint(
                name="billing_quota_policy_known",
                condition=models.Q(
                    scope__in=[scope.value for scope in QuotaScope],
                    metric__in=[metric.value for metric in QuotaMetric],
                    period__in=[period.value for period in QuotaPeriod],
                    limit_amount__gte=0,
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.limit_amount} {self.metric} a {self.period}"


class QuotaCounter(TenantModel):
    """What one window of a policy has used and holds, of one end user where each has their own."""

    pk = models.CompositePrimaryKey("policy", "subject", "window_start")
    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    policy = models.ForeignKey(
        QuotaPolicy, models.PROTECT, related_name="counters", db_constraint=False, db_index=False
    )
    subject = models.CharField(max_length=END_USER_LENGTH_MAX)
    window_start = models.DateTimeField()
    used_amount = IntegerMoneyField(default=0)
    held_amount = IntegerMoneyField(default=0)
    announced_percent = models.SmallIntegerField(db_default=0)
    announced_limit = IntegerMoneyField(db_default=0)

    class Meta(TenantModel.Meta):
        db_table = "billing_quota_counter"
        constraints = [
            models.CheckConstraint(
                name="billing_quota_counter_not_negative",
                condition=models.Q(used_amount__gte=0, held_amount__gte=0),
            )
        ]

    def __str__(self) -> str:
        return f"{self.used_amount} + {self.held_amount} since {self.window_start}"


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
    uncached_input_tokens = models.BigIntegerField(db_default=0)
    cached_input_tokens = models.BigIntegerField(db_default=0)
    output_tokens = models.BigIntegerField(db_default=0)
    quota_version = models.BigIntegerField(db_default=0)
    """Of the account's policies, when the hold was last counted by them."""
    end_user = models.CharField(max_length=END_USER_LENGTH_MAX, db_default="")
    tags = models.JSONField(db_default={})
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
    end_user = models.CharField(max_length=END_USER_LENGTH_MAX)
    tags = models.JSONField()

    class Meta(TenantModel.Meta):
        db_table = "billing_usage_event"

    def __str__(self) -> str:
        return f"{self.request_id}: {self.charge_pico}"
