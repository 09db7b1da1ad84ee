"""Periods and rounding: every instant is in one period, and no pico-unit is lost to cents."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.contracts import PICO, LineKind
from billing.invoices.composing import compose, line
from billing.invoices.periods import SHORTEST, Period, month_of, period_after
from billing.invoices.rounding import CENT_PICO, rounded_to_cents, tax_pico, totals

ZONES = [
    "UTC",
    "Europe/Amsterdam",
    "America/New_York",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "America/Santiago",
    "America/Asuncion",
    "Africa/Cairo",
    "Asia/Amman",
    "Atlantic/Azores",
]
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2037, 12, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
picos = st.integers(-(10**20), 10**20)


@given(moments, zones)
def test_an_instant_is_in_its_month_and_no_other(moment: datetime, zone: ZoneInfo) -> None:
    month = month_of(moment, zone)

    assert moment in month
    assert month_of(month.start_at, zone) == month
    assert month_of(month.end_at - timedelta(microseconds=1), zone) == month
    assert month_of(month.end_at, zone).start_at == month.end_at
    assert timedelta(days=26) < month.end_at - month.start_at < timedelta(days=33)


@given(moments, zones)
def test_months_follow_each_other_without_a_gap(moment: datetime, zone: ZoneInfo) -> None:
    period = month_of(moment, zone)
    for _ in range(14):
        following = period_after(period.end_at, zone)

        assert following.start_at == period.end_at
        assert following == month_of(following.start_at, zone)
        period = following


@given(moments, zones, zones)
def test_a_change_of_zone_leaves_no_gap_and_no_sliver(
    moment: datetime, before: ZoneInfo, after: ZoneInfo
) -> None:
    last = month_of(moment, before)

    period = period_after(last.end_at, after)

    assert period.start_at == last.end_at
    assert SHORTEST <= period.end_at - period.start_at < timedelta(days=50)
    assert month_of(period.end_at, after).start_at == period.end_at


@pytest.mark.parametrize(
    ("month", "hours"),
    [
        (date(2026, 3, 1), 31 * 24 - 1),
        (date(2026, 10, 1), 31 * 24 + 1),
        (date(2026, 2, 1), 28 * 24),
    ],
)
def test_months_with_days_of_23_and_25_hours_are_as_long_as_they_are(
    month: date, hours: int
) -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    period = month_of(datetime(month.year, month.month, 15, tzinfo=UTC), zone)

    assert period.start_at == datetime(month.year, month.month, 1, tzinfo=zone)
    assert period.end_at - period.start_at == timedelta(hours=hours)


def test_an_event_at_the_very_boundary_is_of_the_new_period() -> None:
    zone = ZoneInfo("Asia/Tokyo")
    boundary = datetime(2026, 11, 30, 15, tzinfo=UTC)

    assert month_of(boundary, zone) == Period(boundary, datetime(2026, 12, 31, 15, tzinfo=UTC))
    assert month_of(boundary - timedelta(microseconds=1), zone).end_at == boundary


@pytest.mark.parametrize(
    ("exact", "cents"),
    [
        (0, 0),
        (CENT_PICO // 2 - 1, 0),
        (CENT_PICO // 2, 1),
        (-(CENT_PICO // 2), -1),
        (CENT_PICO + CENT_PICO // 2, 2),
        (-(CENT_PICO // 2) + 1, 0),
    ],
)
def test_half_a_cent_rounds_away_from_zero(exact: int, cents: int) -> None:
    assert rounded_to_cents(exact) == cents * CENT_PICO


@given(st.lists(picos, max_size=30), st.integers(-CENT_PICO, CENT_PICO))
def test_nothing_is_lost_to_rounding(exact: list[int], residue_in: int) -> None:
    found = totals(exact, residue_in)

    assert found.net_pico % CENT_PICO == 0
    assert sum(exact) + residue_in == found.net_pico + found.residue_out_pico
    assert 2 * abs(found.residue_out_pico) <= CENT_PICO * (len(exact) + 1)


@given(st.lists(st.lists(picos, max_size=5), min_size=1, max_size=30))
def test_residues_over_months_stay_below_what_one_month_can_leave(months: list[list[int]]) -> None:
    residue = 0
    asked = 0
    for month in months:
        found = totals(month, residue)
        residue, asked = found.residue_out_pico, asked + found.net_pico

    assert sum(map(sum, months)) == asked + residue
    assert 2 * abs(residue) <= CENT_PICO * 6


@given(st.integers(0, 10**12), st.integers(0, 1_000_000))
def test_tax_is_the_nearest_cent_and_mirrors(cents: int, tax_ppm: int) -> None:
    net = cents * CENT_PICO
    tax = tax_pico(net, tax_ppm)

    assert tax % CENT_PICO == 0
    assert abs(tax * 10**6 - net * tax_ppm) * 2 <= CENT_PICO * 10**6
    assert tax_pico(-net, tax_ppm) == -tax


def test_a_million_tokens_at_two_cents_a_million_are_two_cents() -> None:
    price_micros_per_mtok = PICO * 2 // 100 // 10**6
    one = line(LineKind.USAGE, 1_000_000 * price_micros_per_mtok)

    assert rounded_to_cents(price_micros_per_mtok) == 0
    assert one.rounded_pico == 2 * CENT_PICO


@given(st.lists(picos, max_size=10), st.integers(0, 10**15), st.integers(-CENT_PICO, CENT_PICO))
def test_a_document_is_the_sum_of_its_counted_lines(
    charges: list[int], credit: int, residue: int
) -> None:
    composed = compose(
        [line(LineKind.USAGE, exact) for exact in charges],
        [line(LineKind.TOP_UP, 7)],
        paid_by_credit_pico=credit,
        residue_in_pico=residue,
        tax_ppm=190_000,
    )

    counted = [one for one in composed.lines if one.kind is not LineKind.TOP_UP]
    assert composed.usage_pico == sum(charges)
    assert composed.sums.exact_pico == sum(charges) - credit
    assert composed.sums.net_pico == sum(one.rounded_pico for one in counted)
    assert [one.position for one in composed.lines] == list(range(1, len(composed.lines) + 1))
    assert composed.total_pico == composed.sums.net_pico + composed.tax_pico
