"""`/console/<slug>/billing/invoices`: issued documents, each as a page and on paper.

Reads only: a document never changes. Called by the console's routes.
"""

from collections.abc import Iterable
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

import billing.facade
from billing.contracts import Invoice, InvoiceKind, InvoiceLine
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import ROWS, BillingView
from headrace.tenant_console.billing.prices import unit_price

PPM_PER_PERCENT = 10_000


class InvoicesPage(BillingView):
    """All documents, newest first."""

    title = "Invoices"
    section = "billing-invoices"
    template = "tenant_console/billing/invoices.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?after=` for older ones."""
        found = billing.facade.invoices(
            self.organization_id, rows_max=ROWS + 1, after=self.asked_id("after")
        )
        shown = found[:ROWS]
        columns = [
            Column("Document"),
            Column("Period"),
            Column("Total", is_number=True),
            Column("Due", is_number=True),
            Column("Issued", hides=True),
            Column("Pay by", hides=True),
            Column("Paper", is_hidden_title=True, is_number=True),
        ]
        return self.show(
            is_empty=not found and "after" not in request.GET,
            table=Table(
                "Invoices",
                columns,
                [self._row(one) for one in shown],
                next_href=self.next_href(found, shown[-1].invoice_id if shown else None),
            ),
        )

    def _row(self, one: Invoice) -> Row:
        zone = ZoneInfo(one.time_zone)
        pdf_href = self.url("billing-invoice-pdf", one.invoice_id)
        return Row(
            [
                billing.facade.document_title(one),
                formats.span_text(one.period_start_at, one.period_end_at, zone),
                formats.money(one.total_pico, one.currency),
                formats.money(one.due_pico, one.currency) if one.due_pico else settled_badge(one),
                formats.day_text(one.issued_at, zone),
                formats.day_text(one.due_at, zone),
                format_html('<a href="{}" download>PDF</a>', pdf_href),
            ],
            self.url("billing-invoice", one.invoice_id),
        )


class InvoicePage(BillingView):
    """One document with its lines."""

    title = "Document"
    section = "billing-invoices"
    template = "tenant_console/billing/invoice.html"

    def get(self, request: HttpRequest, slug: str, invoice_id: UUID) -> HttpResponse:
        """What the paper says, exactly."""
        document = billing.facade.invoice(self.organization_id, invoice_id)
        zone = ZoneInfo(document.time_zone)
        return self.show(
            title=billing.facade.document_title(document),
            document=document,
            period=formats.span_text(document.period_start_at, document.period_end_at, zone),
            issued=formats.day_text(document.issued_at, zone),
            due=formats.day_text(document.due_at, zone),
            tax_text=formats.percent_text(document.tax_ppm, 100 * PPM_PER_PERCENT),
            is_invoice=document.kind is InvoiceKind.INVOICE,
            is_statement=document.kind is InvoiceKind.STATEMENT,
            state=settled_badge(document),
            corrected_href=self._corrected(document),
            pdf_href=self.url("billing-invoice-pdf", invoice_id),
            back=self.url("billing-invoices"),
            table=self._table(document, (one for one in document.lines if one.kind.is_counted)),
            moved=self._table(document, (one for one in document.lines if not one.kind.is_counted)),
        )

    def _corrected(self, document: Invoice) -> str:
        corrects = document.corrects
        return self.url("billing-invoice", corrects) if corrects is not None else ""

    def _table(self, document: Invoice, lines: Iterable[InvoiceLine]) -> Table:
        columns = [
            Column("For"),
            Column("Tokens", is_number=True),
            Column("Per million", is_number=True, hides=True),
            Column("Exact", is_number=True, hides=True),
            Column("Amount", is_number=True),
        ]
        rows = [
            Row(
                [
                    billing.facade.line_text(document, line),
                    f"{line.tokens:,}" if line.tokens else "",
                    unit_price(line.price_micros_per_mtok, document.currency)
                    if line.price_micros_per_mtok is not None
                    else "",
                    formats.money_exact(line.exact_pico, document.currency),
                    formats.money_exact(line.rounded_pico, document.currency),
                ]
            )
            for line in lines
        ]
        return Table("Lines", columns, rows, empty="Nothing was used in this period.")


class InvoicePdfPage(BillingView):
    """One document on paper."""

    title = "Document"

    def get(self, request: HttpRequest, slug: str, invoice_id: UUID) -> HttpResponse:
        """The same bytes as the API's."""
        document = billing.facade.invoice(self.organization_id, invoice_id)
        paper = billing.facade.invoice_pdf(document, settings.INVOICE_ISSUER)
        name = f"{document.kind.value}-{document.number}.pdf"
        return HttpResponse(
            paper,
            content_type="application/pdf",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )


def settled_badge(document: Invoice) -> str:
    """What is to be done about it, in a word."""
    if document.kind is InvoiceKind.STATEMENT:
        return badge("paid by credit", "green")
    if document.kind is InvoiceKind.CREDIT_NOTE:
        return badge("credit note", "blue")
    return badge("open", "yellow") if document.due_pico > 0 else badge("paid", "green")
