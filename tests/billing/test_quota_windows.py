"""A window is a local day or month: of 23 and 25 hours too, to the instant, wherever one lives."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from hypothesis import example, given, settings
from hypothesis import strategies as st

from billing.contracts import (
    HoldRequest,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import quotas, reconcile, set_quota, settle
from billing.models import Hold, QuotaCounter, UsageEvent
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, used
from tests.billing.test_quotas import admin

DAILY = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, QuotaPeriod.DAY, 1_000)
MICROSECOND = timedelta(microseconds=1)
ZONES = [
    "UTC",
    "Asia/Tokyo",
    "Asia/Kathmandu",
    "Asia/Shanghai",
    "Europe/Amsterdam",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    # Their clocks change at midnight.
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Havana",
]


def window(at: datetime, period: str, zone: str) -> tuple[datetime, datetime]:
    """Start and end of the window of an instant, as holds compute them."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT s.start, billing_window_end(s.start, %s, %s)"
            "  FROM (SELECT date_trunc(%s, %s::timestamptz, %s) AS start) AS s",
            [period, zone, period, at, zone],
        )
        start, end = cursor.fetchone()
    return start, end


def live_in(tenant: Tenant, zone: str) -> None:
    """Move an organization, as its settings do."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_organization SET time_zone = %s WHERE id = %s",
            [zone, tenant.organization_id],
        )


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Amsterdam", date(2027, 3, 28), 23),
        ("Europe/Amsterdam", date(2027, 10, 31), 25),
        ("America/New_York", date(2027, 3, 14), 23),
        ("America/New_York", date(2027, 11, 7), 25),
        ("Australia/Lord_Howe", date(2027, 4, 4), 24.5),
        ("Asia/Tokyo", date(2027, 3, 28), 24),
    ],
)
def test_days_are_as_long_as_the_clocks_make_them(
    django_database: object, zone: str, day: date, hours: float
) -> None:
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    start, end = window(midnight + timedelta(hours=12), "day", zone)

    assert start == midnight
    assert end - start == timedelta(hours=hours)
    assert end.astimezone(ZoneInfo(zone)).time() == datetime.min.time()
    # An instant at the boundary belongs to the new window, the one before it to the old.
    assert window(end, "day", zone)[0] == end
    assert window(end - MICROSECOND, "day", zone) == (start, end)


@pytest.mark.parametrize(
    ("at", "start", "end"),
    [
        ((2027, 1, 31), (2027, 1, 1), (2027, 2, 1)),
        ((2027, 2, 28), (2027, 2, 1), (2027, 3, 1)),
        ((2028, 2, 29), (2028, 2, 1), (2028, 3, 1)),
        ((2027, 3, 31), (2027, 3, 1), (2027, 4, 1)),
        ((2027, 12, 31), (2027, 12, 1), (2028, 1, 1)),
    ],
)
def test_months_end_where_they_end(
    django_database: object,
    at: tuple[int, int, int],
    start: tuple[int, int, int],
    end: tuple[int, int, int],
) -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    last_moment = datetime(*at, 23, 59, 59, tzinfo=zone)

    assert window(last_moment, "month", zone.key) == (
        datetime(*start, tzinfo=zone),
        datetime(*end, tzinfo=zone),
    )


@given(
    seconds=st.integers(1_420_070_400, 2_051_222_400),
    zone=st.sampled_from(ZONES),
    period=st.sampled_from(["day", "month"]),
)
# Havana's midnight comes twice: an hour in, the clocks go back to it.
@example(seconds=1_825_561_800, zone="America/Havana", period="day")
@settings(max_examples=200, deadline=None)
def test_windows_are_the_local_dates_everywhere(
    django_database: object, seconds: int, zone: str, period: str
) -> None:
    at = datetime.fromtimestamp(seconds, UTC)

    def local(instant: datetime) -> date:
        there = instant.astimezone(ZoneInfo(zone)).date()
        return there if period == "day" else there.replace(day=1)

    start, end = window(at, period, zone)

    # One window to each local date, whichever instant of it is asked, and one after the other.
    assert local(start) == local(at)
    assert local(end) > local(at)
    assert window(start, period, zone) == (start, end)
    assert window(end, period, zone)[0] == end
    assert local(end - timedelta(hours=2)) == local(at)


def test_a_quota_starts_again_at_midnight_where_the_organization_is(acme: Tenant) -> None:
    live_in(acme, "Asia/Tokyo")
    quota = set_quota(admin(acme), DAILY)

    for instant in (quota.window_start, quota.resets_at):
        there = instant.astimezone(ZoneInfo("Asia/Tokyo"))
        assert there.time() == datetime.min.time()
    assert quota.resets_at - quota.window_start == timedelta(days=1)


def test_a_hold_from_before_midnight_settles_into_its_own_day(acme: Tenant) -> None:
    quota = set_quota(admin(acme), DAILY)
    yesterday = quota.window_start - timedelta(days=1)
    late, early = acme.held(), acme.held()
    # As if the clock had struck in between: the day's counter holds one, yesterday's the other.
    with tenant_scope(acme.organization_id, "owner"):
        Hold.objects.using("owner").filter(id=late.request_id).update(
            created_at=quota.window_start - MICROSECOND
        )
        counters = QuotaCounter.objects.using("owner").filter(policy=quota.quota_id)
        counters.update(held_amount=100)
        QuotaCounter.objects.using("owner").create(
            policy_id=quota.quota_id,
            organization_id=acme.organization_id,
            subject="",
            window_start=yesterday,
            held_amount=100,
        )
    assert reconcile() == []

    settle([used(late, UsageCounts(30, 0, 10)), used(early, UsageCounts(3, 0, 1))])

    with tenant_scope(acme.organization_id):
        used_amounts = dict(
            QuotaCounter.objects.filter(policy=quota.quota_id).values_list(
                "window_start", "used_amount"
            )
        )
    assert used_amounts == {yesterday: 40, quota.window_start: 4}
    assert reconcile() == []


def test_a_hold_from_before_its_policys_first_window_settles_all_the_same(acme: Tenant) -> None:
    request = acme.held()
    with tenant_scope(acme.organization_id, "owner"):
        Hold.objects.using("owner").filter(id=request.request_id).update(
            created_at=datetime.now(UTC) - timedelta(days=40)
        )
    quota = set_quota(admin(acme), DAILY)
    monthly = set_quota(
        admin(acme),
        QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, QuotaPeriod.MONTH, 1_000),
    )

    [settled] = settle([used(request, UsageCounts(60, 0, 40))])

    assert settled.posted
    shown = {one.quota_id: one.subjects for one in quotas(admin(acme))}
    assert shown == {quota.quota_id: (), monthly.quota_id: ()}
    assert reconcile() == []


def date_it(tenant: Tenant, request: HoldRequest, at: datetime) -> None:
    """Have a hold taken at another time, whatever has become of it."""
    with tenant_scope(tenant.organization_id, "owner"):
        assert Hold.objects.using("owner").filter(id=request.request_id).update(created_at=at)
        events = UsageEvent.objects.using("owner").filter(request_id=request.request_id)
        events.update(held_at=at)


def counters(tenant: Tenant, quota_id: UUID) -> dict[datetime, tuple[int, int]]:
    """Of each window: what was used and is held."""
    with tenant_scope(tenant.organization_id):
        found = QuotaCounter.objects.filter(organization=tenant.organization_id, policy=quota_id)
        return {one.window_start: (one.used_amount, one.held_amount) for one in found}


def test_holds_from_beyond_midnight_count_in_their_own_day(acme: Tenant) -> None:
    [today, ended, open_] = [acme.held() for _ in range(3)]
    settle([used(ended, UsageCounts(5, 0, 2))])
    # As if the clock had struck while the quota was being set.
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for request in (ended, open_):
        date_it(acme, request, tomorrow)

    quota = set_quota(admin(acme), DAILY)

    assert counters(acme, quota.quota_id) == {
        quota.window_start: (0, 100),
        quota.resets_at: (7, 100),
    }
    assert reconcile() == []
    settle([used(one, UsageCounts(30, 0, 10)) for one in (today, open_)])
    assert counters(acme, quota.quota_id) == {
        quota.window_start: (40, 0),
        quota.resets_at: (47, 0),
    }
    assert reconcile() == []


def zone_of_midnight(at: datetime) -> str:
    """Somewhere without summer time where it is midnight at that instant."""
    return f"<X>{at:%H:%M:%S}"


def test_the_last_moment_of_the_day_before_is_counted_too(acme: Tenant) -> None:
    midnight = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5)
    live_in(acme, zone_of_midnight(midnight))
    late = acme.held()
    date_it(acme, late, midnight - MICROSECOND)

    quota = set_quota(admin(acme), DAILY)

    # A hold that began before midnight and reserves only now finds its counter whole.
    assert quota.window_start == midnight
    assert counters(acme, quota.quota_id) == {midnight - timedelta(days=1): (0, 100)}
    assert reconcile() == []
    settle([used(late, UsageCounts(30, 0, 10))])
    assert counters(acme, quota.quota_id) == {midnight - timedelta(days=1): (40, 0)}
    assert reconcile() == []


def test_the_hour_before_a_second_midnight_counts_in_its_day(acme: Tenant) -> None:
    # Half an hour ago the day began; in another half the clocks fall back to its beginning, as in
    # Havana and on the Azores.
    again = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    day = again.timetuple().tm_yday - 1
    live_in(acme, f"<S>{again:%H:%M:%S}<D>,{(day + 180) % 365}/0,{day}/1")
    ended, under_way = acme.held(), acme.held()
    settle([used(ended, UsageCounts(5, 0, 2))])

    quota = set_quota(admin(acme), DAILY)

    assert counters(acme, quota.quota_id) == {again: (7, 100)}
    assert reconcile() == []
    settle([used(under_way, UsageCounts(30, 0, 10))])
    assert counters(acme, quota.quota_id) == {again: (47, 0)}
    assert reconcile() == []


def test_an_organization_that_moves_has_its_days_counted_anew(acme: Tenant) -> None:
    quota = set_quota(admin(acme), DAILY)
    settle([used(acme.held(), UsageCounts(60, 0, 40))])
    request = acme.held()

    # Somewhere the day is the same instant's, and somewhere it may be another: both count the same
    # holds, each by its own midnight.
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kathmandu"):
        live_in(acme, zone)
        [moved] = quotas(admin(acme))
        assert moved.quota_id != quota.quota_id
        assert (moved.time_zone, moved.wanted) == (zone, DAILY)
        assert moved.window_start.astimezone(ZoneInfo(zone)).time() == datetime.min.time()
        assert reconcile() == []

    settle([used(request, UsageCounts(1, 0, 1))])
    assert reconcile() == []
