"""Between our exact amounts and Stripe's integers, which count a currency's smallest unit. Pure."""

from billing.pricing import coin_pico


def minor_units(amount_pico: int, currency: str) -> int:
    """An amount as Stripe wants it. Raises ValueError for what that cannot say exactly."""
    units, rest = divmod(amount_pico, coin_pico(currency))
    if rest:
        raise ValueError(f"{amount_pico} pico-units are no whole smallest units of {currency}")
    return units


def pico_of(units: int, currency: str) -> int:
    """An amount that Stripe said."""
    return units * coin_pico(currency)
