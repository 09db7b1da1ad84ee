"""The catalog as it is for everybody: all offers, the list's prices with their history, its books.

Reads only, of no tenant: the catalog is the same for all. Called by the operator's pages.
"""

from uuid import UUID

from django.db import connections

from billing.catalog.offers import offer_of
from billing.contracts import Offer, PriceBookInfo, PriceSpan, ServiceTier, TokenClass
from billing.models import OfferRow, PriceBook

APP_ALIAS = "default"
ROWS_MAX = 500
SPANS = """
    SELECT p.id, o.public_id, p.tier, p.token_class, p.currency, p.price_micros_per_mtok,
           lower(p.valid), upper(p.valid), b.version, false
      FROM billing_price p
      JOIN billing_offer o ON o.id = p.offer_id
      JOIN billing_price_book b ON b.id = p.book_id
     WHERE NOT isempty(p.valid)
       AND (%(model)s::text IS NULL OR o.public_id = %(model)s)
       AND (NOT %(in_force)s OR p.valid @> now())
       AND (%(after)s::uuid IS NULL OR p.id < %(after)s)
     ORDER BY p.id DESC LIMIT %(rows)s"""


def offers() -> list[Offer]:
    """All models, those that were retired too, by name."""
    rows = OfferRow.objects.select_related("successor").order_by("public_id")[:ROWS_MAX]
    return [offer_of(row) for row in rows]


def list_prices(
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    *,
    public_id: str | None = None,
    in_force_only: bool = False,
) -> list[PriceSpan]:
    """The list's prices by when they were published, newest first; announced ones are there too."""
    asked = {
        "model": public_id,
        "in_force": in_force_only,
        "after": after,
        "rows": min(rows_max, ROWS_MAX),
    }
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(SPANS, asked)
        return [
            PriceSpan(price_id, model, ServiceTier(tier), TokenClass(token_class), *rest)
            for price_id, model, tier, token_class, *rest in cursor.fetchall()
        ]


def price_books(rows_max: int = ROWS_MAX) -> list[PriceBookInfo]:
    """Versions of the list, newest first."""
    rows = PriceBook.objects.order_by("-version")[: min(rows_max, ROWS_MAX)]
    return [
        PriceBookInfo(
            book_id=row.id,
            version=row.version,
            note=row.note,
            effective_at=row.effective_at,
            created_at=row.created_at,
            created_by=row.created_by,
        )
        for row in rows
    ]
