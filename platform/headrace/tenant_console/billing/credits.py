"""`/console/<slug>/billing/credits`: credit by its sources, and what is left of each.

Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse

import billing.facade
from billing.contracts import CreditGrant, GrantCategory
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import ROWS, BillingView

NAMES = {GrantCategory.PROMOTIONAL: "Given", GrantCategory.PAID: "Paid in"}


class CreditsPage(BillingView):
    """All grants, newest first."""

    title = "Credit"
    section = "billing-credits"
    template = "tenant_console/billing/credits.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?after=` for older ones."""
        found = billing.facade.credit_grants(
            self.organization_id, rows_max=ROWS + 1, after=self.asked_id("after")
        )
        shown = found[:ROWS]
        columns = [
            Column("Credit"),
            Column("Amount", is_number=True),
            Column("Left", is_number=True),
            Column("Used", hides=True),
            Column("From", hides=True),
            Column("Until"),
            Column("State"),
        ]
        return self.show(
            is_empty=not found and "after" not in request.GET,
            table=Table(
                "Credit by source",
                columns,
                [self._row(one) for one in shown],
                next_href=self.next_href(found, shown[-1].grant_id if shown else None),
            ),
        )

    def _row(self, one: CreditGrant) -> Row:
        word, tone = self._state(one)
        return Row(
            [
                NAMES[one.category],
                formats.money(one.amount_pico, self.currency),
                formats.money(one.remaining_pico, self.currency),
                formats.percent_text(one.amount_pico - one.remaining_pico, one.amount_pico),
                formats.moment(one.effective_at, self.zone),
                formats.moment(one.expires_at, self.zone) if one.expires_at else "no end",
                badge(word, tone),
            ],
            is_muted=word in ("used up", "ended"),
        )

    def _state(self, one: CreditGrant) -> tuple[str, str]:
        if one.effective_at > self.now:
            return "to come", "blue"
        if one.expires_at is not None and one.expires_at <= self.now:
            return "ended", "gray"
        return ("in force", "green") if one.remaining_pico else ("used up", "gray")
