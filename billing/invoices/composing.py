"""A document's lines and sums, from what was gathered for it. Pure: no clock, no database.

Never rounds anything twice: each line by itself, once, and the residue on from document to
document. Called by the closing of invoices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from billing.contracts import InvoiceLine, LineKind
from billing.invoices.rounding import Totals, rounded_to_cents, tax_pico, totals

CHARGES = frozenset({LineKind.USAGE, LineKind.CORRECTION, LineKind.WRITTEN_OFF})


@dataclass(frozen=True, slots=True)
class Composed:
    """Numbered lines and what they come to; `usage_pico` is before credit."""

    lines: tuple[InvoiceLine, ...]
    usage_pico: int
    sums: Totals
    tax_pico: int

    @property
    def total_pico(self) -> int:
        """Net and tax."""
        return self.sums.net_pico + self.tax_pico


def line(
    kind: LineKind,
    exact_pico: int,
    *,
    model: str = "",
    tier: str = "",
    token_class: str = "",
    group: str = "",
    tokens: int = 0,
    price_micros_per_mtok: int | None = None,
    of_period: tuple[datetime, datetime] | None = None,
    text: str = "",
) -> InvoiceLine:
    """A line that is not numbered yet, rounded if it counts."""
    start_at, end_at = of_period or (None, None)
    return InvoiceLine(
        position=0,
        kind=kind,
        model=model,
        tier=tier,
        token_class=token_class,
        group=group,
        tokens=tokens,
        price_micros_per_mtok=price_micros_per_mtok,
        exact_pico=exact_pico,
        rounded_pico=rounded_to_cents(exact_pico) if kind.is_counted else exact_pico,
        of_period_start_at=start_at,
        of_period_end_at=end_at,
        text=text,
    )


def charged_pico(lines: Sequence[InvoiceLine]) -> int:
    """What usage charged, exactly, before credit."""
    return sum(one.exact_pico for one in lines if one.kind in CHARGES)


def compose(
    charges: Sequence[InvoiceLine],
    movements: Sequence[InvoiceLine],
    *,
    paid_by_credit_pico: int,
    residue_in_pico: int,
    tax_ppm: int,
) -> Composed:
    """The document: charges, the residue carried in, what credit paid, and movements to be told."""
    lines = [*charges]
    if paid_by_credit_pico:
        lines.append(line(LineKind.CREDIT, -paid_by_credit_pico))
    sums = totals([one.exact_pico for one in lines], residue_in_pico)
    if residue_in_pico:
        lines.append(line(LineKind.CARRIED, residue_in_pico))
    lines += movements
    return Composed(
        lines=tuple(replace(one, position=n) for n, one in enumerate(lines, start=1)),
        usage_pico=charged_pico(charges),
        sums=sums,
        tax_pico=tax_pico(sums.net_pico, tax_ppm),
    )
