"""What models and tenants bring beyond what engines cost: an estimate.

What a model's engines cost, idle or not, is shared among those who used the model, by tokens: which
engine did a request's work is not known. Pure. Called by the page of money.
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


def model_costs_pico(
    engine_s: Mapping[str, Mapping[str, int]], price_pico: Callable[[str], int | None]
) -> dict[str, Fraction]:
    """What each model's engines cost, each at the price of its own hour.

    Without a model one of whose engines has no price.
    """
    costs = {}
    for model, seconds in engine_s.items():
        priced = [(price_pico(engine), one_s) for engine, one_s in seconds.items()]
        known = [Fraction(price * one_s, HOUR_S) for price, one_s in priced if price is not None]
        if len(known) == len(priced):
            costs[model] = sum(known, Fraction())
    return costs


def margins(
    usage: Sequence[TenantUsage],
    cost_pico: Mapping[str, Fraction],
    name: Callable[[TenantUsage], str],
) -> list[Margin]:
    """Summed by what `name` says, the highest charge first; of models in `cost_pico`.

    `usage` has one currency, that of the costs.
    """
    tokens: dict[str, int] = defaultdict(int)
    for one in usage:
        tokens[one.model] += one.tokens
    charges: dict[str, int] = defaultdict(int)
    costs: dict[str, Fraction] = defaultdict(Fraction)
    for one in usage:
        if one.model not in cost_pico:
            continue
        charges[name(one)] += one.charge_pico
        if tokens[one.model]:
            costs[name(one)] += cost_pico[one.model] * one.tokens / tokens[one.model]
    found = [Margin(named, charge, round(costs[named])) for named, charge in charges.items()]
    return sorted(found, key=lambda one: (-one.charge_pico, one.name))
