"""Usage added up by hour, and the queue of events not yet added.

The SQL functions of sql/0005_rollups.sql and sql/0016_model_hours.sql write these from events.
Used inside `billing` only.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from billing.fields import IntegerMoneyField
from tenants.facade import TenantModel


class UsageDelta(TenantModel):
    """A usage event that no rollup has counted yet: written with it, gone once it is counted."""

    pk = models.CompositePrimaryKey("organization_id", "request_id")
    organization_id = models.UUIDField()
    request_id = models.UUIDField()
    occurred_at = models.DateTimeField()
    is_embedding = models.BooleanField()

    class Meta(TenantModel.Meta):
        db_table = "billing_usage_delta"

    def __str__(self) -> str:
        return f"{self.request_id} at {self.occurred_at}"


class UsageSums(TenantModel):
    """What every rollup tells apart, and what it adds up."""

    organization_id = models.UUIDField()
    hour = models.DateTimeField()
    project_id = models.UUIDField()
    model_served = models.CharField(max_length=128)
    tier = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    requests = models.BigIntegerField()
    errors = models.BigIntegerField()
    uncached_input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cost_pico = IntegerMoneyField()
    charge_pico = IntegerMoneyField()

    class Meta(TenantModel.Meta):
        abstract = True


class UsageTotals(UsageSums):
    """What is told apart by key too, and embeddings from the rest."""

    key_id = models.UUIDField()
    is_embedding = models.BooleanField()

    class Meta(UsageSums.Meta):
        abstract = True


class UsageHour(UsageTotals):
    """Every event of one UTC hour, once. What was written off is cost less charge."""

    pk = models.CompositePrimaryKey(
        "organization_id",
        "hour",
        "project_id",
        "key_id",
        "model_served",
        "tier",
        "currency",
        "is_embedding",
    )

    class Meta(UsageTotals.Meta):
        db_table = "billing_usage_hour"

    def __str__(self) -> str:
        return f"{self.requests} requests since {self.hour}"


class UsageTagHour(UsageTotals):
    """The events of one UTC hour that carry a tag, by its value; the end user is the tag `user`.

    An hour keeps a bounded number of values of a tag; the rest is under `(other)`.
    """

    pk = models.CompositePrimaryKey(
        "organization_id",
        "tag_name",
        "hour",
        "tag_value",
        "project_id",
        "key_id",
        "model_served",
        "tier",
        "currency",
        "is_embedding",
    )
    tag_name = models.CharField(max_length=64)
    tag_value = models.CharField(max_length=128)

    class Meta(UsageTotals.Meta):
        db_table = "billing_usage_tag_hour"

    def __str__(self) -> str:
        return f"{self.requests} requests of {self.tag_name}={self.tag_value} since {self.hour}"


class UsageModelHour(UsageSums):
    """Every event of one UTC hour, once, with its times to the first token.

    `first_token_counts` counts by the buckets of usage/histograms.py.
    """

    pk = models.CompositePrimaryKey(
        "organization_id", "hour", "project_id", "model_served", "tier", "currency"
    )
    cache_saved_pico = IntegerMoneyField()
    first_token_counts = ArrayField(models.IntegerField())

    class Meta(UsageSums.Meta):
        db_table = "billing_usage_model_hour"

    def __str__(self) -> str:
        return f"{self.requests} requests of {self.model_served} since {self.hour}"
