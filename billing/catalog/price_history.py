"""What a tenant's prices were, are and will be: the list's and its own, in its currency.

Reads only, in the tenant's scope. Called by the management API.
"""

from uuid import UUID

from django.db import connections

from billing.contracts import PriceSpan, ServiceTier, TokenClass
from tenants.contracts import Actor, Permission
from tenants.facade import tenant_scope

APP_ALIAS = "default"
ROWS_MAX = 101
PAGES = {
    True: "(%(after)s::uuid IS NULL OR p.id > %(after)s) ORDER BY p.id",
    False: "(%(after)s::uuid IS NULL OR p.id < %(after)s) ORDER BY p.id DESC",
}
QUERY = """
    SELECT p.id, o.public_id, p.tier, p.token_class, p.currency, p.price_micros_per_mtok,
           lower(p.valid), upper(p.valid), p.version, p.own
      FROM (SELECT l.id, l.offer_id, l.tier, l.token_class, l.currency, l.price_micros_per_mtok,
                   l.valid, b.version, false AS own
              FROM billing_price l JOIN billing_price_book b ON b.id = l.book_id
             UNION ALL
            SELECT t.id, t.offer_id, t.tier, t.token_class, t.currency, t.price_micros_per_mtok,
                   t.valid, b.version, true
              FROM billing_tenant_price t JOIN billing_tenant_price_book b ON b.id = t.book_id
             WHERE t.organization_id = %(organization)s) AS p
      JOIN billing_offer o ON o.id = p.offer_id
     WHERE NOT isempty(p.valid)
       AND p.currency = (SELECT currency FROM tenants_organization WHERE id = %(organization)s)
       AND (%(model)s::text IS NULL OR o.public_id = %(model)s)
       AND (NOT %(in_force)s OR p.valid @> now())
       AND (NOT %(own)s OR p.own)
       AND """


def price_history(
    actor: Actor,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    *,
    public_id: str | None = None,
    in_force_only: bool = False,
    own_only: bool = False,
    ascending: bool = False,
) -> list[PriceSpan]:
    """Prices by when they were published, newest first, from behind the one named `after` on.

    Announced ones are there too; withdrawn ones, which never held, are not. `own_only` leaves the
    list's out.
    """
    actor.require(Permission.CATALOG_READ)
    parameters = {
        "organization": actor.organization_id,
        "model": public_id,
        "in_force": in_force_only,
        "own": own_only,
        "after": after,
        "rows": min(rows_max, ROWS_MAX),
    }
    with (
        tenant_scope(actor.organization_id),
        connections[APP_ALIAS].cursor() as cursor,
    ):
        cursor.execute(f"{QUERY}{PAGES[ascending]} LIMIT %(rows)s", parameters)
        return [
            PriceSpan(price_id, model, ServiceTier(tier), TokenClass(token_class), *rest)
            for price_id, model, tier, token_class, *rest in cursor.fetchall()
        ]
