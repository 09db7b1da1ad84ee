"""`/operator/tenants/<id>/requests/<id>`: one request's receipt, for a tenant who asks about it.

Shows counts, prices, times and ledger; never what was asked, nor who the tenant's end user is.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import Receipt, ReceiptNotFound
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.operator_console.pages import OperatorView

PICO_PER_MICRO = 10**6


class ReceiptPage(OperatorView):
    """Raises OrganizationNotFound, ReceiptNotFound."""

    page = "tenants"
    title = "Receipt"
    template = "operator_console/tenants/receipt.html"

    def get(self, request: HttpRequest, organization_id: UUID, request_id: str) -> HttpResponse:
        """The receipt, as the tenant's own page has it."""
        tenant = tenants.facade.read_organization(self.actor_in(organization_id))
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ReceiptNotFound(request_id)
        receipt = billing.facade.receipt(organization_id, parsed)
        return self.show(
            tenant=tenant,
            receipt=receipt,
            public_id=public_request_id(receipt.request_id),
            tokens=tokens_table(receipt),
            legs=legs_table(receipt),
        )


def tokens_table(receipt: Receipt) -> Table:
    """What was counted, at the prices that held."""
    counts, currency = receipt.counts, receipt.currency
    lines = (
        ("Uncached input", counts.uncached_input_tokens, receipt.input_micros_per_mtok),
        ("Cached input", counts.cached_input_tokens, receipt.cached_input_micros_per_mtok),
        ("Output", counts.output_tokens, receipt.output_micros_per_mtok),
    )
    rows = [
        Row(
            [
                title,
                f"{tokens:,}",
                formats.money(micros * PICO_PER_MICRO, currency),
                # A price in micro-units a million tokens is as many pico-units a token.
                formats.money(tokens * micros, currency),
            ]
        )
        for title, tokens, micros in lines
    ]
    columns = [
        Column("Class"),
        *(Column(title, is_number=True) for title in ("Tokens", "Price per million", "Amount")),
    ]
    totals = ["Charge", "", "", formats.money(receipt.charge_pico, currency)]
    return Table("Tokens and prices", columns, rows, totals=totals)


def legs_table(receipt: Receipt) -> Table:
    """What was posted."""
    rows = [
        Row([leg.account_kind, formats.money_exact(leg.amount_pico, receipt.currency)])
        for leg in receipt.ledger_legs
    ]
    columns = [Column("Account"), Column("Amount", is_number=True)]
    return Table("Ledger", columns, rows, empty="Nothing was posted for this request.")
