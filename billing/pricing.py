"""What requests cost: pure integer arithmetic, no I/O, no division, no rounding.

A price in micro-units per million tokens is exactly pico-units per token, so a cost is a sum of
products. Called by the hold (estimates), by tests as the reference of the SQL, and for display.
"""

from billing.contracts import PICO, Quote, UsageCounts

FRACTION_DIGITS = len(str(PICO)) - 1
MICRO_PICO = 10**6
"""Pico-units in a micro-unit."""
CURRENCIES_WITHOUT_FRACTION = frozenset(
    {"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA"}
    | {"PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"}
)
CURRENCIES_WITH_THREE_DIGITS = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})


def estimate_pico(quote: Quote, prompt_tokens: int, output_tokens_max: int) -> int:
    """The most a request can cost: the whole prompt at the dearer input price, plus its outputs.

    Raises ValueError for a negative count.
    """
    if min(prompt_tokens, output_tokens_max) < 0:
        raise ValueError("token counts must not be negative")
    dearer = max(quote.input_micros_per_mtok, quote.cached_input_micros_per_mtok)
    return prompt_tokens * dearer + output_tokens_max * quote.output_micros_per_mtok


def cost_pico(quote: Quote, counts: UsageCounts) -> int:
    """The exact cost of disjoint counts at the quoted prices."""
    return (
        counts.uncached_input_tokens * quote.input_micros_per_mtok
        + counts.cached_input_tokens * quote.cached_input_micros_per_mtok
        + counts.cache_write_tokens * _cache_write_micros_per_mtok(quote)
        + counts.output_tokens * quote.output_micros_per_mtok
    )


def counts_of(
    prompt_tokens: int, cached_tokens: int, output_tokens: int, cache_write_tokens: int = 0
) -> UsageCounts:
    """Disjoint counts from an engine's: cached and cache writes are part of the prompt, reasoning
    part of the output.

    Raises ValueError when those parts are more than the prompt, or a count is negative.
    """
    if cached_tokens + cache_write_tokens > prompt_tokens:
        raise ValueError("cached tokens and cache writes must not exceed the prompt")
    return UsageCounts(
        prompt_tokens - cached_tokens - cache_write_tokens,
        cached_tokens,
        output_tokens,
        cache_write_tokens,
    )


def per_million_string(price_micros_per_mtok: int) -> str:
    """A price as people quote it: units of currency per million tokens, exactly."""
    return decimal_string(price_micros_per_mtok * MICRO_PICO)


def per_token_string(price_micros_per_mtok: int) -> str:
    """The same price per single token: micro-units per million are pico-units per token."""
    return decimal_string(price_micros_per_mtok)


def parse_per_million(text: str) -> int:
    """Micro-units per million tokens of a price in units of currency per million tokens.

    Raises ValueError for no number, and for one finer than a micro-unit, which is what a price per
    token looks like where one per million belongs.
    """
    micros, rest = divmod(parse_decimal(text), MICRO_PICO)
    if rest:
        raise ValueError(f"{text} per million tokens is finer than a micro-unit: is it per token?")
    return micros


def _cache_write_micros_per_mtok(quote: Quote) -> int:
    own = quote.cache_write_micros_per_mtok
    return quote.input_micros_per_mtok if own is None else own


def decimal_string(amount_pico: int) -> str:
    """An amount in units of currency, exactly: the shortest decimal with at least two digits."""
    whole, fraction = divmod(abs(amount_pico), PICO)
    digits = str(fraction).zfill(FRACTION_DIGITS).rstrip("0").ljust(2, "0")
    return f"{'-' if amount_pico < 0 else ''}{whole}.{digits}"


def parse_decimal(text: str) -> int:
    """Pico-units of a decimal string such as "5" or "0.02"; the inverse of `decimal_string`.

    Raises ValueError for anything else, and for digits finer than a pico-unit.
    """
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text)
    whole, dot, fraction = unsigned.partition(".")
    is_number = whole.isascii() and whole.isdigit()
    if dot:
        is_number = is_number and fraction.isascii() and fraction.isdigit()
    if not is_number or len(fraction) > FRACTION_DIGITS:
        raise ValueError(f"not an amount of money: {text!r}")
    return sign * (int(whole) * PICO + int(fraction.ljust(FRACTION_DIGITS, "0") or "0"))


def coin_pico(currency: str) -> int:
    """The smallest amount that can be paid in a currency: a cent where nothing else is known."""
    code = currency.upper()
    if code in CURRENCIES_WITHOUT_FRACTION:
        return PICO
    return PICO // (1000 if code in CURRENCIES_WITH_THREE_DIGITS else 100)
