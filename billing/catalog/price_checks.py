"""What looks like a slip in a price list: pure, integers only.

Never decides: the publisher refuses what `out_of_bounds` names and asks the operator about the
rest. Called by `price_books` and by the operator's commands.
"""

from collections.abc import Iterator, Mapping

from billing.contracts import ServiceTier, TokenClass
from billing.pricing import per_million_string, per_token_string

PRICE_MICROS_PER_MTOK_MAX = 10_000_000_000
"""10,000 units of currency per million tokens: past this, a per-token figure was multiplied."""
DEAR_MICROS_PER_MTOK = 1_000_000_000
CHEAP_MICROS_PER_MTOK = 1_000
"""1,000 units of currency, and a thousandth of one, per million tokens: nobody sells beyond."""
JUMP_FACTOR = 100
"""A price that changes this much is more often a mistaken unit than a new price."""

Prices = Mapping[tuple[str, ServiceTier, TokenClass], int]
"""Micro-units per million tokens by model, tier and class."""


def display(price_micros_per_mtok: int, currency: str) -> str:
    """A price both ways, so that a mistaken unit shows."""
    return (
        f"{per_million_string(price_micros_per_mtok)} {currency} per million tokens"
        f" = {per_token_string(price_micros_per_mtok)} {currency} per token"
    )


def out_of_bounds(price_micros_per_mtok: int) -> bool:
    """Whether no price can be meant."""
    return not 0 <= price_micros_per_mtok <= PRICE_MICROS_PER_MTOK_MAX


def warnings(after: Prices, changed: Prices, before: Prices, currency: str) -> tuple[str, ...]:
    """What is odd about the changed prices, seen among all prices `after` the change.

    `before` has those in force until then.
    """
    found = []
    for (model, tier, token_class), price in changed.items():
        label = f"{model}: {tier} {token_class} at {display(price, currency)}"
        if price >= DEAR_MICROS_PER_MTOK:
            found.append(f"{label} is very dear")
        if 0 < price < CHEAP_MICROS_PER_MTOK:
            found.append(f"{label} is next to nothing: is it a price per token?")
        old = before.get((model, tier, token_class))
        if old and price and max(old, price) >= JUMP_FACTOR * min(old, price):
            found.append(f"{label} was {display(old, currency)} before")
    for model, tier in dict.fromkeys((model, tier) for model, tier, _ in changed):
        of_tier = {one: after.get((model, tier, one)) for one in TokenClass}
        found += [f"{model}: {tier} {oddity}" for oddity in _oddities(of_tier)]
        found += [f"{model}: {oddity}" for oddity in _batch_oddities(model, after)]
    return tuple(dict.fromkeys(found))


def _oddities(prices: Mapping[TokenClass, int | None]) -> Iterator[str]:
    input_, output = prices[TokenClass.INPUT], prices[TokenClass.OUTPUT]
    cached = prices[TokenClass.CACHED_INPUT]
    if input_ is None or output is None:
        yield "has no price for both input and output, so it is not sold"
        return
    if output < input_:
        yield "output costs less than input"
    if cached is not None and cached > input_:
        yield "cached input costs more than input"


def _batch_oddities(model: str, prices: Prices) -> Iterator[str]:
    for token_class in TokenClass:
        batch = prices.get((model, ServiceTier.BATCH, token_class))
        interactive = prices.get((model, ServiceTier.INTERACTIVE, token_class))
        if batch is not None and interactive is not None and batch > interactive:
            yield f"batch {token_class} costs more than interactive"
