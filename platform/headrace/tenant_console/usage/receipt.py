"""`/console/<slug>/requests/<id>`: all that one request was held, counted and charged for.

Called by the console's routes.
"""

from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import Receipt, ReceiptNotFound
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.gateway.request_ids import parse_request_id, public_request_id
from tenants.contracts import Permission

PROJECTS_MAX = 2_000
PICO_PER_MICRO = 10**6
ACCOUNTS = {
    "credit": "Paid credit",
    "promo": "Granted credit",
    "revenue": "Charged",
    "cash": "Cash",
    "receivable": "Receivable",
}


class ReceiptPage(PageView):
    """One request's receipt."""

    page = "usage"
    title = "Receipt"
    needs = Permission.REQUESTS_READ
    template = "tenant_console/requests/receipt.html"

    def get(self, request: HttpRequest, slug: str, request_id: str) -> HttpResponse:
        """Raises ReceiptNotFound for what is not the organization's."""
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise ReceiptNotFound(request_id)
        receipt = billing.facade.receipt(self.organization_id, parsed)
        names = tenants.facade.key_names(self.actor, {receipt.key_id})
        projects = tenants.facade.list_projects(
            self.actor, with_archived=True, rows_max=PROJECTS_MAX
        )
        named = {one.project_id: one.name for one in projects}
        return self.show(
            receipt=receipt,
            public_id=public_request_id(receipt.request_id),
            key_name=names.get(receipt.key_id, str(receipt.key_id)),
            key_id=receipt.key_id,
            project_name=named.get(receipt.project_id, str(receipt.project_id)),
            tokens=_tokens(receipt),
            legs=_legs(receipt),
            corrections=receipt.corrections,
            total_ms=receipt.queue_ms + receipt.prefill_ms + receipt.decode_ms,
            phases=_phases(receipt),
        )


def _tokens(receipt: Receipt) -> Table:
    counts = receipt.counts
    lines = [
        ("Uncached input", counts.uncached_input_tokens, receipt.input_micros_per_mtok),
        ("Cached input", counts.cached_input_tokens, receipt.cached_input_micros_per_mtok),
        ("Output", counts.output_tokens, receipt.output_micros_per_mtok),
    ]
    return Table(
        "Tokens and prices",
        [
            Column("Class"),
            Column("Tokens", is_number=True),
            Column("Price per million", is_number=True),
            Column("Amount", is_number=True),
        ],
        [
            Row(
                [
                    title,
                    f"{tokens:,}",
                    # A price in micro-units a million tokens is as many pico-units a token.
                    formats.money(micros * PICO_PER_MICRO, receipt.currency),
                    formats.money(tokens * micros, receipt.currency),
                ]
            )
            for title, tokens, micros in lines
        ],
        totals=["Charge", "", "", formats.money(receipt.charge_pico, receipt.currency)],
    )


def _legs(receipt: Receipt) -> Table:
    return Table(
        "Ledger",
        [Column("Account"), Column("Amount", is_number=True)],
        [
            Row(
                [
                    ACCOUNTS.get(leg.account_kind, leg.account_kind),
                    formats.money_exact(leg.amount_pico, receipt.currency),
                ]
            )
            for leg in receipt.ledger_legs
        ],
        empty="Nothing was posted for this request.",
    )


def _phases(receipt: Receipt) -> list[tuple[str, int, int, int]]:
    """Name, duration, and where its bar starts and how wide it is, in percent."""
    named = [
        ("Queue", receipt.queue_ms),
        ("Prefill", receipt.prefill_ms),
        ("Decode", receipt.decode_ms),
    ]
    whole = sum(duration for _, duration in named) or 1
    found, start = [], 0
    for name, duration in named:
        found.append((name, duration, 100 * start // whole, max(1, 100 * duration // whole)))
        start += duration
    return found
