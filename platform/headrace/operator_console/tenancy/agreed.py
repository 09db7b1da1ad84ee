"""What was agreed with one tenant: prices of its own, and its names for models, as tables."""

import billing.facade
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.catalog.forms import CLASS_LABELS
from headrace.operator_console.pages import ZONE
from headrace.tenant_console.billing.prices import unit_price
from tenants.contracts import Actor

ROWS_MAX = 100


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
        for one in billing.facade.price_history(actor, ROWS_MAX, in_force_only=True, own_only=True)
    ]
    return Table("Prices of its own", columns, rows, empty="It pays what the list says.")


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
