"""Between our exact amounts and Stripe's integers, which count a currency's smallest unit. Pure."""

PICO_DIGITS = 12
WITHOUT_FRACTION = frozenset(
    {"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA"}
    | {"PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"}
)
WITH_THREE_DIGITS = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})


def _pico_per_unit(currency: str) -> int:
    code = currency.upper()
    digits = 0 if code in WITHOUT_FRACTION else 3 if code in WITH_THREE_DIGITS else 2
    return int(10 ** (PICO_DIGITS - digits))


def minor_units(amount_pico: int, currency: str) -> int:
    """An amount as Stripe wants it. Raises ValueError for what that cannot say exactly."""
    units, rest = divmod(amount_pico, _pico_per_unit(currency))
    if rest:
        raise ValueError(f"{amount_pico} pico-units are no whole smallest units of {currency}")
    return units


def pico_of(units: int, currency: str) -> int:
    """An amount that Stripe said."""
    return units * _pico_per_unit(currency)
