"""Documents of a month, and who they are made out to."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.contracts.errors import BillingError


@dataclass(frozen=True, slots=True)
class BillingProfile:
    """Whom an invoice is addressed to: personal fields, which a deletion removes."""

    legal_name: str = ""
    address: str = ""
    email: str = ""
    tax_id: str = ""
    purchase_order: str = ""


class InvoiceKind(enum.StrEnum):
    """An invoice asks for money, a statement reports what credit paid, a credit note gives back."""

    INVOICE = "invoice"
    STATEMENT = "statement"
    CREDIT_NOTE = "credit_note"


class LineKind(enum.StrEnum):
    """What a line is about."""

    USAGE = "usage"
    CORRECTION = "correction"
    """A late event's charge, or a change of one, of an earlier period."""
    WRITTEN_OFF = "written_off"
    CARRIED = "carried"
    """The residue of the invoice before, rounded once it makes a cent."""
    CREDIT = "credit"
    TOP_UP = "top_up"
    GRANT = "grant"
    EXPIRED = "expired"
    REFUND = "refund"

    @property
    def is_counted(self) -> bool:
        """Whether such a line is in its document's sum; the others report movements of credit."""
        return self not in (LineKind.TOP_UP, LineKind.GRANT, LineKind.EXPIRED, LineKind.REFUND)


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One line: an exact amount, and the same rounded half-up to cents."""

    position: int
    kind: LineKind
    model: str
    tier: str
    token_class: str
    group: str
    tokens: int
    price_micros_per_mtok: int | None
    exact_pico: int
    rounded_pico: int
    of_period_start_at: datetime | None = None
    """Of a correction: when its charges belong to."""
    of_period_end_at: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Invoice:
    """An issued document, never changed: exact_pico + residue_in = net_pico + residue_out."""

    invoice_id: UUID
    number: int
    kind: InvoiceKind
    currency: str
    time_zone: str
    period_start_at: datetime
    period_end_at: datetime
    exact_pico: int
    residue_in_pico: int
    residue_out_pico: int
    net_pico: int
    tax_label: str
    tax_ppm: int
    tax_pico: int
    total_pico: int
    paid_pico: int
    credited_pico: int
    issued_at: datetime
    due_at: datetime | None
    corrects: UUID | None
    lines: tuple[InvoiceLine, ...] = ()
    recipient: BillingProfile | None = None

    @property
    def due_pico(self) -> int:
        """What is still to be paid; below 0 it is ours to give back."""
        if self.kind is not InvoiceKind.INVOICE:
            return 0
        return self.total_pico - self.paid_pico - self.credited_pico


class InvoiceNotFound(BillingError):
    """No such invoice in this tenant."""


class InvoiceConflict(BillingError):
    """The payment or credit note is more than is due, or its key was used for another."""
