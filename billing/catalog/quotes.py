"""What a model costs a tenant now, whatever the tenant calls it: one round trip, on every request.

Never guesses: a name nobody knows, a model without prices and a retired one are refused. Called
by the gateway for each request, and by the lists of models.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connections

from billing.contracts import ModelNotFound, ModelRetired, Offer, Quote, ServiceTier
from tenants.facade import tenant_scope

APP_ALIAS = "default"
OFFER_COLUMNS = 10
NAMES_MAX = 5_000
"""Of one list; past it, names are still served."""


def quote(
    organization_id: UUID, project_id: UUID | None, public_id: str, tier: ServiceTier
) -> Quote:
    """The prices in force now of what the tenant means by this name, in its currency.

    The project's alias goes before the organization's, and both before the catalog; a tenant's own
    prices go before the list's. Raises ModelNotFound for an unknown name and for an offer without
    an input and an output price (an explicit 0 is a price, a missing one is not), and ModelRetired,
    which names the successor, for one that was shut down.
    """
    if "\0" not in public_id:
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute(
                "SELECT * FROM billing_quote(%s, %s, %s, %s)",
                [organization_id, project_id, public_id, tier.value],
            )
            row = cursor.fetchone()
        if row is not None:
            return _quote(row, tier)
    raise ModelNotFound("no such model")


def models_for_sale(
    organization_id: UUID,
    project_id: UUID | None = None,
    tier: ServiceTier = ServiceTier.INTERACTIVE,
) -> list[tuple[str, Quote]]:
    """Every name a project may ask for now (its aliases, its organization's and the catalog's),
    with what that means and costs, by name; without a project, the organization's."""
    with tenant_scope(organization_id), connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT named.name, q.* FROM ("
            "    SELECT public_id AS name FROM billing_offer UNION"
            "    SELECT name FROM billing_alias WHERE organization_id = %s"
            "       AND (project_id IS NULL OR project_id = %s)) AS named"
            " CROSS JOIN LATERAL billing_quote(%s, %s, named.name, %s) q"
            " WHERE NOT q.retired ORDER BY named.name LIMIT %s",
            [organization_id, project_id, organization_id, project_id, tier.value, NAMES_MAX],
        )
        return [(name, _quote(row, tier)) for name, *row in cursor.fetchall()]


def _quote(row: Sequence[Any], tier: ServiceTier) -> Quote:
    offer = Offer(*row[:OFFER_COLUMNS])
    retired, currency, *prices = row[OFFER_COLUMNS:]
    if retired:
        raise ModelRetired(offer.public_id, offer.successor)
    return Quote(offer, tier, currency, *prices)
