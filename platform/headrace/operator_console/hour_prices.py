"""What an hour of an engine's GPU costs: some engines have a price of their own.

Parsing is pure and called by the settings, which refuse what makes no sense; `hour_prices` is
called by the pages that show costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

PICO = 10**12
HOUR_PRICE_MAX = 10**6
"""Of a currency's unit; what is more is a typing error."""
PRICED_ENGINES_MAX = 1000


@dataclass(frozen=True, slots=True)
class HourPrices:
    """Prices of an hour in pico units of `GPU_HOUR_CURRENCY`."""

    own_pico: Mapping[str, int]
    """By engine id."""
    others_pico: int | None
    """Of engines that are not named; None is unknown."""

    def of(self, engine_id: str) -> int | None:
        """What an hour of this engine costs; None is unknown, and so is what it leads to."""
        return self.own_pico.get(engine_id, self.others_pico)

    @property
    def are_unknown(self) -> bool:
        """Not one price is set."""
        return not self.own_pico and self.others_pico is None


def hour_prices() -> HourPrices:
    """As set."""
    return HourPrices(settings.GPU_HOUR_PRICES_PICO, settings.GPU_HOUR_PRICE_PICO)


def parsed_price_pico(name: str, text: str) -> int | None:
    """`2.50`, None for nothing; raises ImproperlyConfigured."""
    if not text:
        return None
    price_pico = _price_pico(text)
    if price_pico is None:
        raise ImproperlyConfigured(f"{name} must be an amount like 2.50, not {text!r}")
    return price_pico


def parsed_prices_pico(name: str, text: str) -> dict[str, int]:
    """`engine-a=2.10,engine-b=0.40` by engine id; raises ImproperlyConfigured."""
    prices: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        engine_id, _, amount = (one.strip() for one in part.partition("="))
        price_pico = _price_pico(amount)
        if not engine_id or price_pico is None:
            raise ImproperlyConfigured(
                f"{name} must be engines with an amount each, "
                f"like engine-a=2.10,engine-b=0.40: {part!r} is none"
            )
        if engine_id in prices:
            raise ImproperlyConfigured(f"{name} names {engine_id!r} twice")
        prices[engine_id] = price_pico
    if len(prices) > PRICED_ENGINES_MAX:
        raise ImproperlyConfigured(f"{name} names more than {PRICED_ENGINES_MAX} engines")
    return prices


def _price_pico(text: str) -> int | None:
    try:
        amount = Decimal(text)
    except ArithmeticError:
        return None
    if not amount.is_finite() or not 0 <= amount <= HOUR_PRICE_MAX:
        return None
    return int(amount * PICO)
