"""What becomes of an invoice: paid, taken back in part, paid back where that was too much.

Never changes a document: each of these is an entry of its own that points at it. Called by the
operator's commands and by payment messages, as the housekeeper.
"""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from django.db import IntegrityError
from django.db.models import Sum

from billing.contracts import Invoice, InvoiceConflict, InvoiceKind, InvoiceNotFound, LineKind
from billing.credit.refusals import move_money, refused
from billing.invoices.composing import compose, line
from billing.invoices.issuing import Heading, call_one, issue, next_number
from billing.invoices.periods import Period
from billing.invoices.reading import invoice
from billing.invoices.rounding import CENT_PICO, tax_pico
from billing.models import InvoiceRow, LedgerTransaction
from billing.retry import again
from tenants.facade import tenant_scope

REFERENCE_CHARS_MAX = 100


def record_payment(
    organization_id: UUID,
    invoice_id: UUID,
    amount_pico: int,
    reference: str,
    using: str = "housekeeper",
) -> bool:
    """Money arrived for an invoice, or, below 0, went back; False when that was noted before.

    What came beyond what is due becomes paid credit. Raises InvoiceNotFound, or InvoiceConflict
    where nothing is due (or, below 0, for more than was paid too much) and for a reference that is
    another payment's.
    """
    _check_reference(reference)
    [(done,)] = move_money(
        "SELECT billing_pay_invoice(%s, %s, %s, %s)",
        [organization_id, invoice_id, amount_pico, reference],
        using,
    )
    return bool(done)


def credit_note(
    organization_id: UUID,
    invoice_id: UUID,
    net_pico: int,
    reason: str,
    idempotency_key: str,
    *,
    now: datetime | None = None,
    using: str = "housekeeper",
) -> Invoice:
    """Take back so much of an invoice, with its tax; the same key answers the same note.

    Raises ValueError unless the amount is positive and of whole cents, InvoiceNotFound, or
    InvoiceConflict for more than is left of the invoice.
    """
    if net_pico <= 0 or net_pico % CENT_PICO:
        raise ValueError("a credit note is of whole cents")
    _check_reference(idempotency_key)
    issued_at = now or datetime.now(UTC)

    def once() -> UUID:
        with tenant_scope(organization_id, using):
            return _credit(
                organization_id, invoice_id, net_pico, reason, idempotency_key, issued_at, using
            )

    try:
        return invoice(organization_id, again(once), using)
    except IntegrityError as error:
        raise refused(error) from error


def _credit(
    organization_id: UUID,
    invoice_id: UUID,
    net_pico: int,
    reason: str,
    idempotency_key: str,
    issued_at: datetime,
    using: str,
) -> UUID:
    mine = InvoiceRow.objects.using(using).filter(organization_id=organization_id)
    call_one("SELECT billing_hold_account(%s)", [organization_id], using)
    tx = (
        LedgerTransaction.objects.using(using)
        .filter(organization_id=organization_id, idempotency_key=f"credit_note:{idempotency_key}")
        .first()
    )
    if tx is not None:
        note = mine.get(ledger_tx_id=tx.id)
        if (note.corrects, note.net_pico) != (invoice_id, -net_pico):
            raise InvoiceConflict("the key was used for another credit note")
        note_id: UUID = note.id
        return note_id
    document = mine.filter(id=invoice_id, kind=InvoiceKind.INVOICE.value).first()
    if document is None:
        raise InvoiceNotFound("no such invoice")
    composed = replace(
        compose(
            [line(LineKind.CREDIT, -net_pico, text=reason[:256])],
            [],
            paid_by_credit_pico=0,
            residue_in_pico=0,
            tax_ppm=0,
        ),
        tax_pico=-_tax_taken_back(document, net_pico, using),
    )
    tx_id = call_one(
        "SELECT billing_post_credit_note(%s, %s, %s, %s, %s)",
        [organization_id, invoice_id, idempotency_key, net_pico, -composed.tax_pico],
        using,
    )
    heading = Heading(
        organization_id=organization_id,
        number=next_number(organization_id, using),
        kind=InvoiceKind.CREDIT_NOTE,
        zone_name=document.time_zone,
        period=Period(document.period_start_at, document.period_end_at),
        tax_label=document.tax_label,
        tax_ppm=document.tax_ppm,
        issued_at=issued_at,
        due_at=None,
        corrects=invoice_id,
    )
    return issue(heading, composed, tx_id, using)


def _tax_taken_back(document: InvoiceRow, net_pico: int, using: str) -> int:
    """The last note of an invoice takes what is left of its tax, so that notes come to no more."""
    before = (
        InvoiceRow.objects.using(using)
        .filter(organization_id=document.organization_id, corrects=document.id)
        .aggregate(net=Sum("net_pico"), tax=Sum("tax_pico"))
    )
    tax_left_pico = document.tax_pico + int(before["tax"] or 0)
    if net_pico == document.net_pico + int(before["net"] or 0):
        return tax_left_pico
    return min(tax_pico(net_pico, document.tax_ppm), tax_left_pico)


def _check_reference(reference: str) -> None:
    if not 1 <= len(reference) <= REFERENCE_CHARS_MAX:
        raise ValueError(f"a reference has 1 to {REFERENCE_CHARS_MAX} characters")
