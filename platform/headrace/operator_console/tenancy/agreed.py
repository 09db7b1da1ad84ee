"""What was agreed with one tenant: prices of its own, and its names for models, as tables."""

import billing.facade
from billing.contracts import PriceSpan
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.catalog.forms import CLASS_LABELS
from headrace.operator_console.pages import ZONE
from headrace.tenant_console.billing.prices import unit_price
from tenants.contracts import Actor

ROWS_MAX = 100
PAGES_MAX = 10
"""Of prices in force, the list's among them: as many as one book may have."""


def own_prices(actor: Actor) -> Table:
    """In force now; they go before the list's."""
    columns = (
        *(Column("Model"), Column("Tier"), Column("Tokens")),
        Column("Per million", is_number=True),
        Column("From", hides=True),
    )
    rows = [
        Row(
            [
                *(one.public_id, one.tier.value, CLASS_LABELS[one.token_class]),
                unit_price(one.price_micros_per_mtok, one.currency),
                formats.moment(one.effective_at, ZONE),
            ]
        )
        for one in _in_force(actor)
        if one.own
    ]
    return Table("Prices of its own", columns, rows, empty="It pays what the list says.")


def _in_force(actor: Actor) -> list[PriceSpan]:
    found: list[PriceSpan] = []
    for _ in range(PAGES_MAX):
        after = found[-1].price_id if found else None
        page = billing.facade.price_history(actor, ROWS_MAX, after, in_force_only=True)
        found.extend(page)
        if len(page) < ROWS_MAX:
            break
    return found


def names_table(actor: Actor) -> Table:
    """The tenant's aliases."""
    columns = (Column("Name"), Column("Means"), Column("In", hides=True))
    rows = [
        Row(
            [
                one.name,
                one.public_id,
                "one project" if one.project_id else "the organization",
            ]
        )
        for one in billing.facade.aliases(actor, rows_max=ROWS_MAX)
    ]
    return Table("Names for models", columns, rows, empty="It has no names of its own for models.")
