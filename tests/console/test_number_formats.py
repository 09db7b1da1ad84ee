"""How numbers read: short, never scientific, never wrong by more than they show, exact on hover."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console_kit import formats
from headrace.console_kit.charts import Chart, Color, Series, Unit
from headrace.console_kit.colors import checked_color
from headrace.console_kit.formats import PICO

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
AMOUNTS = st.integers(-(10**24), 10**24)


@pytest.mark.parametrize(
    ("amount_pico", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000000000001"),
        (412 * 10**6, "$0.000412"),
        (PICO // 2, "$0.50"),
        (PICO, "$1.00"),
        (1_234_567 * PICO + 5 * 10**9, "$1,234,567.00"),
        (-3 * 10**9, "-$0.003"),
        (None, "\u2013"),
    ],
)
def test_money_has_cents_from_one_dollar_and_three_digits_below(
    amount_pico: int | None, shown: str
) -> None:
    assert formats.money_text(amount_pico, "USD") == shown


def _amount(text: str) -> Decimal:
    return Decimal(re.sub(r"[$,]", "", text))


@given(AMOUNTS)
def test_money_shows_its_exact_amount_on_hover_and_nearly_that_without(amount_pico: int) -> None:
    shown, exact = formats.money_text(amount_pico, "USD"), formats.money_exact(amount_pico, "USD")

    assert "E" not in shown.upper()
    assert shown != "-$0.00"
    assert _amount(exact) * PICO == amount_pico
    off = abs(_amount(shown) - _amount(exact))
    assert off <= max(abs(_amount(exact)) * Decimal("0.005"), Decimal(0))


def test_a_currency_without_a_sign_is_named() -> None:
    assert formats.money_text(5 * PICO, "CHF") == "5.00 CHF"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        *[(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (99_999, "100k"), (999_499, "999k")],
        *[(999_999, "1.00M"), (4_560_000, "4.56M"), (12 * 10**9, "12B"), (-12_345, "-12.3k")],
    ],
)
def test_counts_are_short(number: int, shown: str) -> None:
    assert formats.count_text(number) == shown


@given(st.integers(-(10**14), 10**14))
def test_a_short_count_is_right_to_three_digits(number: int) -> None:
    shown = formats.count_text(number).replace(",", "")
    units = {"k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
    value = Decimal(shown[:-1]) * units[shown[-1]] if shown[-1] in units else Decimal(shown)

    assert abs(value - number) <= abs(number) * Decimal("0.005")
    assert f"{number:,}" in formats.count(number)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_not_quite_nothing_never_reads_as_nothing(part: int, more: int) -> None:
    whole = part + more

    shown = formats.percent_text(part, whole)

    assert (shown == "0 %") == (part == 0)
    assert shown != "100 %"
    assert formats.percent_text(whole, whole) == "100 %"
    assert formats.percent_text(part, 0) == formats.UNKNOWN


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        *[(0, "0 ms"), (999, "999 ms"), (2_410, "2.41 s"), (60_000, "1 min")],
        *[(200_000, "3 min 20 s"), (7_500_000, "2 h 5 min"), (270_000_000, "3 d 3 h")],
    ],
)
def test_durations_have_two_units_at_most(duration_ms: int, shown: str) -> None:
    assert formats.duration_text(duration_ms) == shown


def test_a_period_says_its_last_day_and_its_zone() -> None:
    start_at, end_at = datetime(2026, 11, 1, tzinfo=BERLIN), datetime(2026, 11, 30, tzinfo=BERLIN)

    assert formats.span_text(start_at, end_at, BERLIN) == "1\u201329 Nov 2026, UTC+1"
    assert formats.span_text(start_at, start_at + timedelta(days=1), BERLIN).startswith(
        "1 Nov 2026"
    )


def test_times_are_the_organizations_and_exact_on_hover() -> None:
    shown = formats.moment(NOW, BERLIN)

    assert ">29 Nov 2026, 13:00</time>" in shown
    assert 'title="29 Nov 2026, 13:00:00 UTC+1"' in shown
    assert 'datetime="2026-11-29T12:00:00+00:00"' in shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5, "5 s ago"), (3 * 3600, "3 h ago"), (-90, "in 1 min"), (20 * 86_400, "9 Nov 2026")],
)
def test_ages_are_relative_for_two_weeks(seconds: int, shown: str) -> None:
    assert formats.age_text(NOW - timedelta(seconds=seconds), NOW) == shown


def test_a_chart_and_its_table_say_the_same() -> None:
    chart = Chart(
        "spend",
        "Spend",
        Unit.MONEY,
        ["Mon", "Tue"],
        [
            Series("input", Color.UNCACHED, [PICO, 0]),
            Series("output", Color.OUTPUT, [2 * PICO, 5 * 10**9]),
        ],
        currency="USD",
    )

    assert chart.data["series"][1]["values"] == [2 * 10**6, 5000]
    [first, second] = [list(map(str, row.cells)) for row in chart.twin.rows]
    assert ["$1.00" in first[1], "$2.00" in first[2], "$3.00" in first[3]] == [True] * 3
    assert "$0.005" in second[3]


def test_an_accent_that_is_no_colour_is_refused_at_the_start() -> None:
    from django.core.exceptions import ImproperlyConfigured

    assert checked_color("#0B5C92") == "#0b5c92"
    with pytest.raises(ImproperlyConfigured, match="HEADRACE_CONSOLE_ACCENT"):
        checked_color("red; } body { display: none")
