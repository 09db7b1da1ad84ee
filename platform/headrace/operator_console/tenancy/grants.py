"""The latest credit grants of a tenant, as a table."""

from uuid import UUID

import billing.facade
from billing.contracts import Balance
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.operator_console.pages import ZONE

GRANTS_MAX = 20
COLUMNS = (
    Column("Granted"),
    Column("Reference"),
    Column("Kind"),
    Column("Amount", is_number=True),
    Column("Left", is_number=True),
    Column("Ends", hides=True),
)


def grants_table(organization_id: UUID, balance: Balance | None) -> Table:
    """As the tenant's own page has them; without an account there are none."""
    rows = []
    if balance is not None:
        for one in billing.facade.credit_grants(organization_id, rows_max=GRANTS_MAX):
            ends = "never" if one.expires_at is None else formats.day_text(one.expires_at, ZONE)
            cells = (
                formats.moment(one.created_at, ZONE),
                one.source,
                one.category.value,
                formats.money(one.amount_pico, balance.currency),
                formats.money(one.remaining_pico, balance.currency),
                ends,
            )
            rows.append(Row(cells, is_muted=not one.remaining_pico))
    return Table("Credit grants", COLUMNS, rows, empty="No credit was granted or bought.")
