"""A limit's preview says what its windows used, and when they would have been full."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from billing.contracts import (
    QuotaInvalid,
    QuotaMetric,
    QuotaPeriod,
    QuotaPreview,
    QuotaScope,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import hold, preview_quota, quotas, roll_up, set_quota, settle
from tenants.facade import create_project, issue_key, operator_of, rotate_key
from tests.billing.cast import Tenant, used
from tests.billing.planted import Planted, planted

ZONE = "Europe/Amsterdam"
NOW = datetime(2026, 5, 14, 12, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
DAY = timedelta(days=1)
DAILY = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, QuotaPeriod.DAY, 100)
MONTHLY = replace(DAILY, period=QuotaPeriod.MONTH)


def preview(tenant: Tenant, wanted: QuotaWanted, **others: Any) -> QuotaPreview:
    """As an editor of limits shows it at NOW."""
    return preview_quota(tenant.organization_id, replace(wanted, **others), NOW, ZONE)


def in_use(seen: QuotaPreview) -> list[int]:
    """What the windows used, but for those that used nothing."""
    return [period.used_amount for period in seen.periods if period.used_amount]


def test_thirty_local_days_say_on_how_many_the_limit_was_reached(acme: Tenant) -> None:
    midnight = datetime(2026, 5, 14, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
    events = [
        Planted(midnight, uncached=100),
        Planted(midnight - timedelta(seconds=1), uncached=99),
        Planted(midnight - 2 * DAY, uncached=60),
        Planted(midnight - 2 * DAY + timedelta(hours=3), cached=41, uncached=0),
        Planted(midnight - 29 * DAY, uncached=5),
        Planted(midnight - 29 * DAY - timedelta(seconds=1), uncached=500),
    ]
    with planted(acme, events):
        roll_up()
        seen = preview(acme, DAILY)
        without_cached = preview(acme, DAILY, counts_cached=False)

    assert (seen.days, seen.days_reached, len(seen.periods)) == (30, 2, 30)
    assert in_use(seen) == [5, 101, 99, 100]
    assert seen.periods[-1].reached_on == seen.periods[-1].start_at == midnight
    assert seen.periods[-2].reached_on is None
    assert seen.periods[0].start_at == midnight - 29 * DAY
    assert without_cached.days_reached == 1


def test_a_month_is_full_from_a_day_on(acme: Tenant) -> None:
    zone = ZoneInfo(ZONE)
    spent = ((4, 1, 40), (4, 20, 70), (5, 3, 60), (5, 12, 50))
    events = [
        Planted(datetime(2026, month, day, 9, tzinfo=zone).astimezone(UTC), uncached=tokens)
        for month, day, tokens in spent
    ]
    with planted(acme, events):
        seen = preview(acme, MONTHLY)

    april, may = seen.periods
    assert (april.used_amount, may.used_amount) == (110, 110)
    assert april.start_at == datetime(2026, 4, 1, tzinfo=zone)
    assert april.end_at == may.start_at == datetime(2026, 5, 1, tzinfo=zone)
    assert april.reached_on == datetime(2026, 4, 20, tzinfo=zone)
    assert may.reached_on == datetime(2026, 5, 12, tzinfo=zone)
    assert (seen.days, seen.days_reached) == (44, 11 + 3)


def test_scopes_and_metrics_count_what_the_limit_would(acme: Tenant) -> None:
    project = create_project(acme.organization_id, "other")
    key = issue_key(acme.organization_id, project, "other").key_id
    events = [
        Planted(NOW, uncached=4, cached=2, output=1, end_user="ann"),
        Planted(NOW, uncached=40, output=20, project_id=project, key_id=key),
    ]
    scopes: dict[QuotaScope, Any] = {
        QuotaScope.ORGANIZATION: {},
        QuotaScope.PROJECT: {"scope_id": project},
        QuotaScope.KEY: {"scope_id": acme.key_id},
        QuotaScope.END_USER: {"end_user": "ann"},
    }
    with planted(acme, events):
        roll_up()
        of_scope = {
            scope: in_use(preview(acme, DAILY, scope=scope, **which))
            for scope, which in scopes.items()
        }
        of_metric = {metric: in_use(preview(acme, DAILY, metric=metric)) for metric in QuotaMetric}

    assert of_scope == {
        QuotaScope.ORGANIZATION: [67],
        QuotaScope.PROJECT: [60],
        QuotaScope.KEY: [7],
        QuotaScope.END_USER: [7],
    }
    assert of_metric == {
        QuotaMetric.REQUESTS: [2],
        QuotaMetric.TOKENS: [67],
        QuotaMetric.INPUT_TOKENS: [46],
        QuotaMetric.OUTPUT_TOKENS: [21],
        QuotaMetric.SPEND: [67],
    }


def test_a_preview_is_what_the_limit_then_counts(acme: Tenant) -> None:
    request = acme.request()
    hold([request])
    settle([used(request, UsageCounts(50, 10, 40))])
    wanted = replace(DAILY, counts_cached=False)

    seen = preview_quota(acme.organization_id, wanted, datetime.now(UTC), "UTC")
    set_quota(operator_of(acme.organization_id), wanted)

    [standing] = quotas(operator_of(acme.organization_id))
    assert seen.periods[-1].used_amount == standing.subjects[0].used_amount == 90
    assert seen.periods[-1].start_at == standing.window_start


def test_keys_that_were_rotated_count_together(acme: Tenant) -> None:
    actor = operator_of(acme.organization_id)
    successor = rotate_key(actor, acme.key_id).key_id
    events = [Planted(NOW, uncached=3), Planted(NOW, uncached=4, key_id=successor)]
    with planted(acme, events):
        for key in (acme.key_id, successor):
            assert in_use(preview(acme, DAILY, scope=QuotaScope.KEY, scope_id=key)) == [7]


def test_anothers_key_shows_nothing(acme: Tenant, globex: Tenant) -> None:
    foreign = ((QuotaScope.KEY, globex.key_id), (QuotaScope.PROJECT, globex.project_id))
    with planted(acme, [Planted(NOW)]), planted(globex, [Planted(NOW)]):
        for scope, scope_id in (*foreign, (QuotaScope.KEY, uuid4())):
            assert in_use(preview(acme, DAILY, scope=scope, scope_id=scope_id)) == []


def test_a_limit_of_nothing_is_reached_always(acme: Tenant) -> None:
    seen = preview(acme, DAILY, limit_amount=0)

    assert seen.days_reached == seen.days == 30


def test_what_has_no_single_use_is_refused(acme: Tenant) -> None:
    with pytest.raises(QuotaInvalid):
        preview(acme, DAILY, scope=QuotaScope.END_USER)
    with pytest.raises(QuotaInvalid):
        preview(acme, DAILY, scope=QuotaScope.KEY)
