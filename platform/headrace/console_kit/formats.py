"""How numbers, money and times read on a page: short, and exact on hover.

Pure: integers and aware times in, text or a small piece of HTML out. Never a float near money.
Called by the template tags and by the tables of pages.
"""

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from zoneinfo import ZoneInfo

from django.utils.html import format_html
from django.utils.safestring import SafeString

EN_DASH = "\u2013"
UNKNOWN = EN_DASH
PICO = 10**12
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
SIGNIFICANT_DIGITS = 3
"""Of an amount below one unit of its currency."""
CENTS = Decimal("0.01")
SHORTENED_FROM = 10_000
US_PER_MS = 1000
UNITS = ((10**3, "k"), (10**6, "M"), (10**9, "B"), (10**12, "T"))
RELATIVE_STEPS = ((60, "s", 1), (3600, "min", 60), (86_400, "h", 3600), (14 * 86_400, "d", 86_400))
"""Ages below so many seconds, in this unit, which is so many seconds long."""


def money_text(amount_pico: int | None, currency: str) -> str:
    """`$1,234.50` from one unit up, else as many decimals as show three significant digits."""
    if amount_pico is None:
        return UNKNOWN
    amount = Decimal(amount_pico) / PICO
    size = abs(amount)
    if size == 0 or size >= 1:
        shown = f"{size.quantize(CENTS, ROUND_HALF_EVEN):,}"
    else:
        places = SIGNIFICANT_DIGITS - 1 - size.adjusted()
        shown = f"{size.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):f}"
        whole, _, decimals = shown.partition(".")
        shown = f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"
    return f"{'-' if amount < 0 else ''}{_with_sign(shown, currency)}"


def money_exact(amount_pico: int | None, currency: str) -> str:
    """All decimals there are."""
    if amount_pico is None:
        return UNKNOWN
    whole, rest = divmod(abs(amount_pico), PICO)
    decimals = f"{rest:012d}".rstrip("0").ljust(2, "0")
    sign = "-" if amount_pico < 0 else ""
    return f"{sign}{_with_sign(f'{whole:,}.{decimals}', currency)}"


def money(amount_pico: int | None, currency: str) -> SafeString:
    """An amount of money, exact on hover."""
    return _exact_on_hover(money_text(amount_pico, currency), money_exact(amount_pico, currency))


def count_text(number: int | None) -> str:
    """`1,234`, `12.3k`, `4.56M`."""
    if number is None:
        return UNKNOWN
    size = abs(number)
    if size < SHORTENED_FROM:
        return f"{number:,}"
    sign = "-" if number < 0 else ""
    for unit, suffix in UNITS:
        rounded = Decimal(f"{Decimal(size) / unit:.3g}")
        if rounded < 1000 or unit == UNITS[-1][0]:  # 999,999 is 1.00M, not 1000k
            return f"{sign}{Decimal(size) / unit:.3g}{suffix}"
    raise AssertionError(number)


def count(number: int | None) -> SafeString:
    """A number of things, exact on hover."""
    return _exact_on_hover(count_text(number), UNKNOWN if number is None else f"{number:,}")


def percent_text(part: int | None, whole: int | None) -> str:
    """`38 %`; a share that is not quite all or nothing never reads as that."""
    if part is None or not whole:
        return UNKNOWN
    share = Decimal(100 * part) / whole
    if 0 < share < 1 or 99 < share < 100:
        edge = share.quantize(Decimal("0.1"))
        if edge in (0, 100):
            return "< 0.1 %" if edge == 0 else "> 99.9 %"
        return f"{edge} %"
    return f"{share.quantize(Decimal(1))} %"


def duration_text(duration_ms: int | None) -> str:
    """`340 ms`, `2.41 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if duration_ms is None:
        return UNKNOWN
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{Decimal(duration_ms) / 1000:.3g} s"
    seconds = duration_ms // 1000
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= unit_s:
            rest = seconds % unit_s // part_s
            return f"{seconds // unit_s} {unit}" + (f" {rest} {part}" if rest else "")
    rest = seconds % 60
    return f"{seconds // 60} min" + (f" {rest} s" if rest else "")


def short_duration_text(duration_us: int | None) -> str:
    """`8.35 ms`, `412 ms`, and what is longer as `duration_text` has it."""
    if duration_us is None or duration_us >= US_PER_MS * US_PER_MS:
        return duration_text(None if duration_us is None else duration_us // US_PER_MS)
    return f"{float(f'{duration_us / US_PER_MS:.3g}'):g} ms"


def moment_text(at: datetime | None, zone: ZoneInfo, *, with_seconds: bool = False) -> str:
    """`29 Nov 2026, 14:05`, in the organization's zone."""
    if at is None:
        return UNKNOWN
    local = at.astimezone(zone)
    clock = local.strftime("%H:%M:%S" if with_seconds else "%H:%M")
    return f"{local.day} {local.strftime('%b %Y')}, {clock}"


def day_text(at: datetime | None, zone: ZoneInfo) -> str:
    """`29 Nov 2026`."""
    return UNKNOWN if at is None else f"{(local := at.astimezone(zone)).day} {local:%b %Y}"


def span_text(start_at: datetime, end_at: datetime, zone: ZoneInfo) -> str:
    """What a period includes, its last day with it: `1-29 Nov 2026, UTC+1`."""
    first = start_at.astimezone(zone)
    last = (end_at - timedelta(microseconds=1)).astimezone(zone)
    end = f"{last.day} {last:%b %Y}"
    if first.date() == last.date():
        days = end
    elif (first.year, first.month) == (last.year, last.month):
        days = f"{first.day}{EN_DASH}{end}"
    elif first.year == last.year:
        days = f"{first.day} {first:%b} {EN_DASH} {end}"
    else:
        days = f"{first.day} {first:%b %Y} {EN_DASH} {end}"
    return f"{days}, {zone_text(last)}"


def zone_text(at: datetime) -> str:
    """`UTC`, `UTC+1`, `UTC-3:30`: of an aware time in its own zone."""
    offset = at.utcoffset() or timedelta()
    minutes = int(offset.total_seconds()) // 60
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours}" + (f":{rest:02d}" if rest else "")


def age_text(at: datetime | None, now: datetime) -> str:
    """`12 s ago`, `in 3 h`; a date once that is further away than two weeks."""
    if at is None:
        return "never"
    seconds = int((now - at).total_seconds())
    for below_s, unit, unit_s in RELATIVE_STEPS:
        if abs(seconds) < below_s:
            number = abs(seconds) // unit_s
            return f"in {number} {unit}" if seconds < 0 else f"{number} {unit} ago"
    return day_text(at, ZoneInfo("UTC"))


def moment(at: datetime | None, zone: ZoneInfo) -> SafeString:
    """A time in the organization's zone, exact on hover."""
    if at is None:
        return SafeString(UNKNOWN)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        _iso(at),
        f"{moment_text(at, zone, with_seconds=True)} {zone_text(at.astimezone(zone))}",
        moment_text(at, zone),
    )


def age(at: datetime | None, zone: ZoneInfo, now: datetime) -> SafeString:
    """How long ago, exact on hover."""
    if at is None:
        return SafeString("never")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        _iso(at),
        f"{moment_text(at, zone, with_seconds=True)} {zone_text(at.astimezone(zone))}",
        age_text(at, now),
    )


def _with_sign(shown: str, currency: str) -> str:
    sign = SIGNS.get(currency.upper())
    return f"{sign}{shown}" if sign else f"{shown} {currency.upper()}"


def _exact_on_hover(shown: str, exact: str) -> SafeString:
    if shown == exact:
        return format_html('<span class="num">{}</span>', shown)
    return format_html('<span class="num" title="{}">{}</span>', exact, shown)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
