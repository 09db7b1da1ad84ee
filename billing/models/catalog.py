"""The operator's price list: models for sale, and what their tokens cost when.

The same for every tenant, so without a tenant column; only the housekeeper writes it. Used inside
`billing` only.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import ServiceTier

TIERS = [tier.value for tier in ServiceTier]


class TokenClass(models.TextChoices):
    """What a token is sold as."""

    INPUT = "input"
    CACHED_INPUT = "cached_input"
    OUTPUT = "output"


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
