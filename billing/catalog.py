"""The price list: what is for sale, at which price now, and how the operator changes that.

Price rows are immutable: a new price closes the old row's span of time and adds a row, so a past
event's snapshot never changes. Called by the gateway (quote, offers) and by seed and operators.
"""

from uuid import UUID

from django.db import connections, transaction
from django.db.models.functions import Now

from billing.contracts import ModelNotFound, Offer, Quote, ServiceTier
from billing.models import Account, OfferRow, Price, TokenClass
from tenants.facade import tenant_scope

APP_ALIAS = "default"
PRICE_MICROS_PER_MTOK_MAX = 10_000_000_000
"""10,000 units of currency per million tokens: a price per token entered by mistake is refused."""


def quote(organization_id: UUID, public_id: str, tier: ServiceTier) -> Quote:
    """The prices in force now, in the organization's currency, in one round trip.

    Raises ModelNotFound for an unknown or inactive offer, and for one without an input and an
    output price: an explicit 0 is a price, a missing one is not.
    """
    if "\0" not in public_id:
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute(
                "SELECT * FROM billing_quote(%s, %s, %s)", [organization_id, public_id, tier.value]
            )
            row = cursor.fetchone()
        if row is not None:
            offer, currency, price_ids, prices = row[:7], row[7], row[8:11], row[11:14]
            return Quote(Offer(*offer), tier, currency, *price_ids, *prices)
    raise ModelNotFound("no such model")


def offers(organization_id: UUID) -> list[Offer]:
    """What this organization can buy now: active offers with interactive prices in its currency."""
    with tenant_scope(organization_id):
        currency = Account.objects.values_list("currency", flat=True).first()
        sold = Price.objects.filter(
            tier=ServiceTier.INTERACTIVE.value, currency=currency, valid__contains=Now()
        )
        rows = list(
            OfferRow.objects.filter(
                is_active=True,
                id__in=sold.filter(token_class=TokenClass.INPUT).values("offer"),
            )
            .filter(id__in=sold.filter(token_class=TokenClass.OUTPUT).values("offer"))
            .order_by("public_id")
        )
    return [
        Offer(
            offer_id=row.id,
            public_id=row.public_id,
            display_name=row.display_name,
            owned_by=row.owned_by,
            context_tokens_max=row.context_tokens_max,
            output_tokens_max=row.output_tokens_max,
            created_at=row.created_at,
        )
        for row in rows
    ]


def publish_offer(
    public_id: str,
    display_name: str,
    owned_by: str,
    context_tokens_max: int,
    output_tokens_max: int,
    using: str = "housekeeper",
) -> UUID:
    """Put a model on sale, or update what is said of it; returns the offer's id. Idempotent."""
    offer, _ = OfferRow.objects.using(using).update_or_create(
        public_id=public_id,
        defaults={
            "display_name": display_name,
            "owned_by": owned_by,
            "context_tokens_max": context_tokens_max,
            "output_tokens_max": output_tokens_max,
            "is_active": True,
        },
    )
    offer_id: UUID = offer.id
    return offer_id


def set_price(
    public_id: str,
    tier: ServiceTier,
    token_class: str,
    price_micros_per_mtok: int,
    currency: str = "USD",
    using: str = "housekeeper",
) -> UUID:
    """Sell one token class of an offer at this price from now on; returns the price row's id.

    Setting the price in force again changes nothing. Raises ModelNotFound, or ValueError for a
    negative or absurd price or an unknown class.
    """
    if not 0 <= price_micros_per_mtok <= PRICE_MICROS_PER_MTOK_MAX:
        raise ValueError(f"a price of {price_micros_per_mtok} micros per Mtok is out of bounds")
    with transaction.atomic(using=using):
        offer = OfferRow.objects.using(using).select_for_update().filter(public_id=public_id)
        offer_id = offer.values_list("id", flat=True).first()
        if offer_id is None:
            raise ModelNotFound(f"no such model: {public_id}")
        identity = {
            "offer_id": offer_id,
            "tier": tier.value,
            "token_class": TokenClass(token_class).value,
            "currency": currency,
        }
        current = Price.objects.using(using).filter(**identity, valid__endswith=None).first()
        if current is not None and current.price_micros_per_mtok == price_micros_per_mtok:
            return _id_of(current)
        with connections[using].cursor() as cursor:
            # Read once the offer is ours: now() is of before the wait for it.
            cursor.execute("SELECT clock_timestamp()")
            (moment,) = cursor.fetchone() or (None,)
            if current is not None:
                cursor.execute(
                    "UPDATE billing_price SET valid = tstzrange(lower(valid), %s) WHERE id = %s",
                    [moment, current.id],
                )
            cursor.execute(
                "INSERT INTO billing_price"
                " (id, offer_id, tier, token_class, currency, price_micros_per_mtok, valid)"
                " VALUES (uuidv7(), %s, %s, %s, %s, %s, tstzrange(%s, NULL)) RETURNING id",
                [*identity.values(), price_micros_per_mtok, moment],
            )
            created = cursor.fetchone()
        assert created is not None
        new_id: UUID = created[0]
        return new_id


def _id_of(price: Price) -> UUID:
    price_id: UUID = price.id
    return price_id
