"""From exact pico-units to cents, once per line, with nothing lost: the residue is carried on.

Pure. Half a cent rounds away from zero, so that a credit note mirrors its invoice. Called by the
closing of invoices and by credit notes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from billing.contracts import PICO

CENT_PICO = PICO // 100
PPM = 1_000_000


def rounded_to_cents(exact_pico: int) -> int:
    """The nearest whole number of cents, in pico-units."""
    return _rounded_division(exact_pico, CENT_PICO) * CENT_PICO


def tax_pico(net_pico: int, tax_ppm: int) -> int:
    """Tax of a net amount, rounded to cents."""
    return _rounded_division(net_pico * tax_ppm, CENT_PICO * PPM) * CENT_PICO


@dataclass(frozen=True, slots=True)
class Totals:
    """exact_pico + residue_in_pico = net_pico + residue_out_pico."""

    exact_pico: int
    residue_in_pico: int
    net_pico: int
    residue_out_pico: int


def totals(exact_picos: Iterable[int], residue_in_pico: int) -> Totals:
    """Round each line and the carried residue by themselves, and say what is left of them."""
    lines = list(exact_picos)
    exact_pico = sum(lines)
    net_pico = sum(rounded_to_cents(line) for line in [*lines, residue_in_pico])
    return Totals(exact_pico, residue_in_pico, net_pico, exact_pico + residue_in_pico - net_pico)


def _rounded_division(number: int, divisor: int) -> int:
    magnitude = (abs(number) * 2 + divisor) // (divisor * 2)
    return magnitude if number >= 0 else -magnitude
