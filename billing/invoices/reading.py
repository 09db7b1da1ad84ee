"""Issued documents as their tenant sees them. Reads only; called by views and by the closing."""

from uuid import UUID

from django.db.models import Sum

from billing.contracts import Invoice, InvoiceKind, InvoiceLine, InvoiceNotFound, LineKind
from billing.invoices.profiles import shown
from billing.models import InvoiceLineRow, InvoicePayment, InvoiceRecipient, InvoiceRow
from tenants.facade import tenant_scope


def invoice(organization_id: UUID, invoice_id: UUID, using: str = "default") -> Invoice:
    """One document with its lines. Raises InvoiceNotFound."""
    with tenant_scope(organization_id, using):
        row = (
            InvoiceRow.objects.using(using)
            .filter(organization_id=organization_id, id=invoice_id)
            .first()
        )
        if row is None:
            raise InvoiceNotFound("no such invoice")
        lines = InvoiceLineRow.objects.using(using).filter(
            organization_id=organization_id, invoice_id=invoice_id
        )
        recipient = InvoiceRecipient.objects.using(using).filter(invoice_id=invoice_id).first()
        return _shown(
            row,
            using,
            lines=tuple(_shown_line(line) for line in lines.order_by("position")),
            recipient=recipient,
        )


def invoice_numbered(organization_id: UUID, number: int, using: str = "default") -> UUID:
    """The id of the tenant's document of this number. Raises InvoiceNotFound."""
    with tenant_scope(organization_id, using):
        rows = InvoiceRow.objects.using(using).filter(organization_id=organization_id)
        invoice_id: UUID | None = rows.filter(number=number).values_list("id", flat=True).first()
    if invoice_id is None:
        raise InvoiceNotFound(f"no document {number}")
    return invoice_id


def invoices(
    organization_id: UUID,
    *,
    rows_max: int = 100,
    after: UUID | None = None,
    ascending: bool = False,
    using: str = "default",
) -> list[Invoice]:
    """The tenant's documents without their lines, the newest first."""
    with tenant_scope(organization_id, using):
        rows = InvoiceRow.objects.using(using).filter(organization_id=organization_id)
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        ordered = rows.order_by("id" if ascending else "-id")[:rows_max]
        return [_shown(row, using) for row in ordered]


def _shown(
    row: InvoiceRow,
    using: str,
    lines: tuple[InvoiceLine, ...] = (),
    recipient: InvoiceRecipient | None = None,
) -> Invoice:
    paid = InvoicePayment.objects.using(using).filter(invoice_id=row.id)
    notes = InvoiceRow.objects.using(using).filter(
        organization_id=row.organization_id, corrects=row.id
    )
    return Invoice(
        invoice_id=row.id,
        number=row.number,
        kind=InvoiceKind(row.kind),
        currency=row.currency,
        time_zone=row.time_zone,
        period_start_at=row.period_start_at,
        period_end_at=row.period_end_at,
        exact_pico=row.exact_pico,
        residue_in_pico=row.residue_in_pico,
        residue_out_pico=row.residue_out_pico,
        net_pico=row.net_pico,
        tax_label=row.tax_label,
        tax_ppm=row.tax_ppm,
        tax_pico=row.tax_pico,
        total_pico=row.total_pico,
        paid_pico=int(paid.aggregate(total=Sum("amount_pico"))["total"] or 0),
        credited_pico=-int(notes.aggregate(total=Sum("total_pico"))["total"] or 0),
        issued_at=row.issued_at,
        due_at=row.due_at,
        corrects=row.corrects,
        lines=lines,
        recipient=shown(recipient) if recipient is not None else None,
    )


def _shown_line(row: InvoiceLineRow) -> InvoiceLine:
    return InvoiceLine(
        position=row.position,
        kind=LineKind(row.kind),
        model=row.model,
        tier=row.tier,
        token_class=row.token_class,
        group=row.group,
        tokens=row.tokens,
        price_micros_per_mtok=row.price_micros_per_mtok,
        exact_pico=row.exact_pico,
        rounded_pico=row.rounded_pico,
        of_period_start_at=row.of_period_start_at,
        of_period_end_at=row.of_period_end_at,
        text=row.text,
    )
