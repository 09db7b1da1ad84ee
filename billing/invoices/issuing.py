"""Writing a document and all that belongs to it, in the open transaction of whoever composed it.

A document is written once, with its lines and its addressee as of now, said in the audit log, and,
where it asks for money, told as an event. Called by the closing of periods and by credit notes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Max
from uuid_utils.compat import uuid7

from billing.contracts import BillingProfile, InvoiceKind
from billing.invoices.composing import Composed
from billing.invoices.periods import Period
from billing.invoices.profiles import profile_of
from billing.models import Account, InvoiceLineRow, InvoiceRecipient, InvoiceRow
from tenants.contracts import Actor, ActorKind
from tenants.facade import emit, record_audit


@dataclass(frozen=True, slots=True)
class Heading:
    """What a document says besides its lines and sums."""

    organization_id: UUID
    number: int
    kind: InvoiceKind
    zone_name: str
    period: Period
    tax_label: str
    tax_ppm: int
    issued_at: datetime
    due_at: datetime | None
    corrects: UUID | None = None


def next_number(organization_id: UUID, using: str) -> int:
    """The organization's next; safe while its account is held."""
    rows = InvoiceRow.objects.using(using).filter(organization_id=organization_id)
    return int(rows.aggregate(last=Max("number"))["last"] or 0) + 1


def last_residue_pico(organization_id: UUID, kind: InvoiceKind, using: str) -> int:
    """What the last document of this kind left to be carried."""
    rows = InvoiceRow.objects.using(using).filter(organization_id=organization_id, kind=kind.value)
    residue: int | None = (
        rows.order_by("-number").values_list("residue_out_pico", flat=True).first()
    )
    return residue or 0


def issue(heading: Heading, composed: Composed, tx_id: UUID | None, using: str) -> UUID:
    """Write the document; returns its id. The organization's account is held."""
    invoice_id: UUID = uuid7()
    organization_id = heading.organization_id
    currency = (
        Account.objects.using(using)
        .values_list("currency", flat=True)
        .get(organization_id=organization_id)
    )
    InvoiceRow.objects.using(using).create(
        id=invoice_id,
        organization_id=organization_id,
        number=heading.number,
        kind=heading.kind.value,
        corrects=heading.corrects,
        currency=currency,
        time_zone=heading.zone_name,
        period_start_at=heading.period.start_at,
        period_end_at=heading.period.end_at,
        usage_pico=composed.usage_pico,
        exact_pico=composed.sums.exact_pico,
        residue_in_pico=composed.sums.residue_in_pico,
        residue_out_pico=composed.sums.residue_out_pico,
        net_pico=composed.sums.net_pico,
        tax_label=heading.tax_label,
        tax_ppm=heading.tax_ppm,
        tax_pico=composed.tax_pico,
        total_pico=composed.total_pico,
        ledger_tx_id=tx_id,
        issued_at=heading.issued_at,
        due_at=heading.due_at,
    )
    InvoiceLineRow.objects.using(using).bulk_create(
        InvoiceLineRow(organization_id=organization_id, invoice_id=invoice_id, **asdict(line))
        for line in composed.lines
    )
    profile = profile_of(organization_id, using)
    if profile != BillingProfile():
        InvoiceRecipient.objects.using(using).create(
            invoice_id=invoice_id, organization_id=organization_id, **asdict(profile)
        )
    _tell(heading, composed, invoice_id, currency, using)
    return invoice_id


def _tell(
    heading: Heading, composed: Composed, invoice_id: UUID, currency: str, using: str
) -> None:
    facts = {
        "number": str(heading.number),
        "kind": heading.kind.value,
        "total_pico": str(composed.total_pico),
        "currency": currency,
    }
    if heading.kind is not InvoiceKind.STATEMENT:
        emit(
            heading.organization_id,
            "invoice.issued",
            {"invoice_id": str(invoice_id), **facts},
            using=using,
        )
    record_audit(
        Actor(ActorKind.SYSTEM, None, heading.organization_id, frozenset()),
        "invoice.issued",
        "invoice",
        invoice_id,
        facts,
        using=using,
    )


def call_one(sql: str, parameters: Sequence[Any], using: str) -> Any:  # any column's type
    """The one value that a function returns, inside the open transaction."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    assert row is not None
    return row[0]
