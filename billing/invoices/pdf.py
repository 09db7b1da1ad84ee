"""A document on paper: the same bytes each time, for whoever asks for it again.

Draws what the books say and computes nothing but page breaks. The built-in fonts know Latin-1;
other letters lose their accents, or appear as question marks. Called by the views.
"""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from billing.contracts import PICO, Invoice, InvoiceKind, InvoiceLine
from billing.invoices.wording import document_title, line_text, local_day, local_span
from billing.pricing import decimal_string

if TYPE_CHECKING:
    from fpdf import FPDF

FONT = "Helvetica"
LINE_MM = 5
WIDTHS_MM = (92, 24, 24, 40)
LINE_CHARS_MAX = 60
MICROS_TO_PICO = PICO // 10**6


def invoice_pdf(invoice: Invoice, issuer: str) -> bytes:
    """The document as PDF; `issuer` is who sends it, in lines of text."""
    from fpdf import FPDF  # 17 MB, of which a process that draws nothing needs none

    pdf = FPDF(format="A4")
    pdf.set_creation_date(invoice.issued_at)
    pdf.set_title(document_title(invoice))
    pdf.set_producer("Headrace")
    pdf.add_page()
    _head(pdf, invoice, issuer)
    counted = [line for line in invoice.lines if line.kind.is_counted]
    moved = [line for line in invoice.lines if not line.kind.is_counted]
    _table(pdf, invoice, counted)
    _sums(pdf, invoice)
    if moved:
        _text(pdf, "Credit in this period", bold=True)
        _table(pdf, invoice, moved)
    return bytes(pdf.output())


def _head(pdf: "FPDF", invoice: Invoice, issuer: str) -> None:
    for text in issuer.splitlines():
        _text(pdf, text)
    pdf.ln(LINE_MM)
    recipient = invoice.recipient
    if recipient is not None:
        for text in (recipient.legal_name, *recipient.address.splitlines()):
            _text(pdf, text)
        for name, text in (("Tax id", recipient.tax_id), ("Order", recipient.purchase_order)):
            if text:
                _text(pdf, f"{name}: {text}")
    pdf.ln(LINE_MM)
    pdf.set_font(FONT, "B", 16)
    pdf.cell(0, 10, document_title(invoice), new_x="LMARGIN", new_y="NEXT")
    facts = [
        ("Issued", local_day(invoice, invoice.issued_at)),
        ("Period", local_span(invoice, invoice.period_start_at, invoice.period_end_at)),
    ]
    if invoice.due_at is not None:
        facts.append(("Due", local_day(invoice, invoice.due_at)))
    for name, text in facts:
        _text(pdf, f"{name}: {text}")
    pdf.ln(LINE_MM)


def _table(pdf: "FPDF", invoice: Invoice, lines: Sequence[InvoiceLine]) -> None:
    _row(pdf, ("", "Tokens", "Per million", f"Amount ({invoice.currency})"), bold=True)
    for line in lines:
        price = line.price_micros_per_mtok
        _row(
            pdf,
            (
                line_text(invoice, line),
                f"{line.tokens:,}" if line.tokens else "",
                "" if price is None else decimal_string(price * MICROS_TO_PICO),
                decimal_string(line.rounded_pico),
            ),
        )
    pdf.ln(LINE_MM)


def _sums(pdf: "FPDF", invoice: Invoice) -> None:
    _row(pdf, ("Net", "", "", decimal_string(invoice.net_pico)))
    if invoice.tax_ppm:
        rate = decimal_string(invoice.tax_ppm * MICROS_TO_PICO * 100)
        _row(pdf, (f"{invoice.tax_label} {rate} %", "", "", decimal_string(invoice.tax_pico)))
    _row(pdf, ("Total", "", "", decimal_string(invoice.total_pico)), bold=True)
    if invoice.kind is InvoiceKind.STATEMENT:
        _text(pdf, "Paid by prepaid credit: nothing is due.")
    pdf.ln(LINE_MM)


def _text(pdf: "FPDF", text: str, *, bold: bool = False) -> None:
    pdf.set_font(FONT, "B" if bold else "", 10)
    pdf.cell(0, LINE_MM, _latin(text), new_x="LMARGIN", new_y="NEXT")


def _row(pdf: "FPDF", cells: Sequence[str], *, bold: bool = False) -> None:
    pdf.set_font(FONT, "B" if bold else "", 8)
    first, *others = cells
    pdf.cell(WIDTHS_MM[0], LINE_MM, _latin(first)[:LINE_CHARS_MAX])
    for width, text in zip(WIDTHS_MM[1:], others, strict=True):
        pdf.cell(width, LINE_MM, _latin(text), align="R")
    pdf.ln(LINE_MM)


def _latin(text: str) -> str:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in text if not unicodedata.combining(one))
        text = text.encode("latin-1", "replace").decode("latin-1")
    return text
