"""What documents and their lines are called, on paper and on pages alike. Pure.

Called by the drawing of papers and, through the facade, by the console.
"""

from datetime import datetime
from zoneinfo import ZoneInfo

from billing.contracts import Invoice, InvoiceKind, InvoiceLine, LineKind

TITLES = {
    InvoiceKind.INVOICE: "Invoice",
    InvoiceKind.STATEMENT: "Statement",
    InvoiceKind.CREDIT_NOTE: "Credit note",
}
NAMES = {
    LineKind.WRITTEN_OFF: "Written off",
    LineKind.CARRIED: "Rounding carried from the last document",
    LineKind.CREDIT: "Paid by credit",
    LineKind.TOP_UP: "Top-up",
    LineKind.GRANT: "Credit granted",
    LineKind.EXPIRED: "Credit expired",
    LineKind.REFUND: "Refund",
}


def document_title(invoice: Invoice) -> str:
    """`Invoice 7`."""
    return f"{TITLES[invoice.kind]} {invoice.number}"


def line_text(invoice: Invoice, line: InvoiceLine) -> str:
    """What a line of the document is for."""
    name = "" if invoice.kind is InvoiceKind.CREDIT_NOTE else NAMES.get(line.kind, "")
    if line.of_period_start_at is not None and line.of_period_end_at is not None:
        span = local_span(invoice, line.of_period_start_at, line.of_period_end_at)
        name = f"Correction for {span}"
    parts = [name, line.model, line.token_class.replace("_", " "), line.tier, line.group, line.text]
    return ", ".join(part for part in parts if part)


def local_span(invoice: Invoice, start_at: datetime, end_at: datetime) -> str:
    """From a day until before another, where the document was issued."""
    return f"{local_day(invoice, start_at)} until {local_day(invoice, end_at)}"


def local_day(invoice: Invoice, moment: datetime) -> str:
    """`2026-11-29`, in the document's time zone."""
    return moment.astimezone(ZoneInfo(invoice.time_zone)).date().isoformat()
