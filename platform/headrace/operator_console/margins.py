"""What models and tenants bring beyond what engines cost: an estimate.

An engine's time, idle or not, is shared among those who used its model, by tokens. Pure. Called by
the page of money.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.contracts import TenantUsage

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Margin:
    """Of one model or tenant; `cost_pico` is what its share of engines' time cost."""

    name: str
    charge_pico: int
    cost_pico: int

    @property
    def margin_pico(self) -> int:
        """Below zero where it costs more than it brings."""
        return self.charge_pico - self.cost_pico


def margins(
    usage: Sequence[TenantUsage],
    engine_s: Mapping[str, int],
    hour_price_pico: int,
    name: Callable[[TenantUsage], str],
) -> list[Margin]:
    """Summed by what `name` says, the highest charge first; of models whose engines were seen.

    `usage` has one currency, that of the price.
    """
    tokens: dict[str, int] = defaultdict(int)
    for one in usage:
        tokens[one.model] += one.tokens
    charges: dict[str, int] = defaultdict(int)
    costs: dict[str, Fraction] = defaultdict(Fraction)
    for one in usage:
        if one.model not in engine_s:
            continue
        cost = Fraction(engine_s[one.model] * hour_price_pico, HOUR_S)
        charges[name(one)] += one.charge_pico
        if tokens[one.model]:
            costs[name(one)] += cost * one.tokens / tokens[one.model]
    found = [Margin(named, charge, round(costs[named])) for named, charge in charges.items()]
    return sorted(found, key=lambda one: (-one.charge_pico, one.name))
