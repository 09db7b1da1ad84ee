"""What is for sale under which names, and what its tokens cost when.

Offers and the list's price book are the operator's, the same for every tenant and without a tenant
column. A tenant's aliases and the prices agreed with it are rows of its own, behind the tenant
policy. Prices are never changed, only closed. Used inside `billing` only.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from billing.contracts import ServiceTier, TokenClass
from tenants.facade import TenantModel

ORGANIZATION = "tenants.OrganizationRow"
TIERS = [tier.value for tier in ServiceTier]
CLASSES = [token_class.value for token_class in TokenClass]


class OfferRow(models.Model):
    """A model for sale, of the operator's one catalog. Renaming never touches past receipts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    public_id = models.CharField(max_length=128, unique=True)
    display_name = models.CharField(max_length=128)
    owned_by = models.CharField(max_length=64)
    context_tokens_max = models.PositiveIntegerField()
    output_tokens_max = models.PositiveIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    deprecated_at = models.DateTimeField(null=True)
    shutdown_at = models.DateTimeField(null=True)
    successor = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )

    class Meta:
        db_table = "billing_offer"
        constraints = [
            models.CheckConstraint(
                name="billing_offer_deprecated_before_shutdown",
                condition=models.Q(shutdown_at=None)
                | models.Q(shutdown_at__gte=models.F("deprecated_at")),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class AliasRow(TenantModel):
    """A tenant's own name for an offer: in one project, or (project null) in all of them."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(ORGANIZATION, on_delete=models.PROTECT, related_name="+")
    project = models.ForeignKey(
        "tenants.Project",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    name = models.CharField(max_length=128)
    offer = models.ForeignKey(OfferRow, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "billing_alias"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name", "project"],
                name="billing_alias_once",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return self.name


class BookFields(models.Model):
    """One published version of prices."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    version = models.PositiveIntegerField()
    note = models.CharField(max_length=500)
    effective_at = models.DateTimeField()
    created_by = models.CharField(max_length=128)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True


class PriceBook(BookFields):
    """A version of the list that holds for every tenant."""

    class Meta:
        db_table = "billing_price_book"
        constraints = [
            models.UniqueConstraint(fields=["version"], name="billing_price_book_version"),
        ]

    def __str__(self) -> str:
        return f"list {self.version}"


class TenantPriceBook(BookFields, TenantModel):
    """A version of the prices agreed with one tenant, which go before the list's."""

    organization = models.ForeignKey(ORGANIZATION, on_delete=models.PROTECT, related_name="+")

    class Meta(TenantModel.Meta):
        db_table = "billing_tenant_price_book"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "version"], name="billing_tenant_price_book_version"
            ),
            models.UniqueConstraint(
                fields=["organization", "id"], name="billing_tenant_price_book_with_tenant"
            ),
        ]

    def __str__(self) -> str:
        return f"override {self.version}"


class PriceFields(models.Model):
    """One unit price over one span of time. Immutable, but for ending the span earlier.

    An empty span is that of a price withdrawn before it came into force.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    offer = models.ForeignKey(OfferRow, on_delete=models.PROTECT, related_name="+")
    tier = models.CharField(max_length=16)
    token_class = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    price_micros_per_mtok = models.BigIntegerField()
    valid = DateTimeRangeField()

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                name="billing_%(class)s_known_tier", condition=models.Q(tier__in=TIERS)
            ),
            models.CheckConstraint(
                name="billing_%(class)s_known_class", condition=models.Q(token_class__in=CLASSES)
            ),
            models.CheckConstraint(
                name="billing_%(class)s_not_negative",
                condition=models.Q(price_micros_per_mtok__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.token_class} {self.price_micros_per_mtok} ({self.tier})"


class Price(PriceFields):
    """A price of the list."""

    book = models.ForeignKey(PriceBook, on_delete=models.PROTECT, related_name="+")

    class Meta:
        db_table = "billing_price"
        constraints = [
            *PriceFields.Meta.constraints,
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


class TenantPrice(PriceFields, TenantModel):
    """A price agreed with one tenant."""

    organization = models.ForeignKey(
        ORGANIZATION, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    book = models.ForeignKey(TenantPriceBook, models.PROTECT, related_name="+", db_constraint=False)

    class Meta(TenantModel.Meta):
        db_table = "billing_tenant_price"
        indexes = [
            # Each hold asks whether the tenant has any price of its own for the offer.
            models.Index(fields=["organization", "offer"], name="billing_tenant_price_offer"),
        ]
        constraints = [
            *PriceFields.Meta.constraints,
            ExclusionConstraint(
                name="billing_tenant_price_one_at_a_time",
                expressions=[
                    ("organization", RangeOperators.EQUAL),
                    ("offer", RangeOperators.EQUAL),
                    ("tier", RangeOperators.EQUAL),
                    ("token_class", RangeOperators.EQUAL),
                    ("currency", RangeOperators.EQUAL),
                    ("valid", RangeOperators.OVERLAPS),
                ],
            ),
        ]
