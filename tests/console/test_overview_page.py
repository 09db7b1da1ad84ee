"""The overview: its numbers are the reports', and it says what to do first and what is wrong."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from billing.contracts import (
    Balance,
    Quota,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaSubject,
    QuotaWanted,
    UsageSum,
)
from headrace.console_kit.formats import PICO
from headrace.tenant_console.overview.attention import Urgency, notices
from tenants.contracts import Role
from tests.isolation.sides import Side, make_side
from tests.isolation.test_console_matrix import slug_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
RECENT = UsageSum(NOW - timedelta(days=1), NOW, 100, 0, 0, 0, 0, 0, 0, 0)
BALANCE = Balance("USD", 100 * PICO, 0, 0)


def quota(used: int, *, is_hard: bool = True) -> Quota:
    """A day's quota of 1,000 requests for the organization."""
    wanted = QuotaWanted(
        *(QuotaScope.ORGANIZATION, QuotaMetric.REQUESTS, QuotaPeriod.DAY, 1000), is_hard=is_hard
    )
    return Quota(
        uuid4(),
        wanted,
        "UTC",
        NOW - timedelta(hours=12),
        NOW + timedelta(hours=12),
        (QuotaSubject("", used, 0),),
        NOW,
        "user",
        None,
    )


def said(
    balance: Balance | None = BALANCE, *quotas: Quota, recent: UsageSum = RECENT, pace: int = PICO
) -> list[tuple[Urgency, str]]:
    return [(one.urgency, one.route) for one in notices(balance, quotas, recent, pace, NOW)]


def test_nothing_is_said_where_all_is_well() -> None:
    assert said(BALANCE, quota(799)) == []
    assert said(None) == []


@pytest.mark.parametrize(
    ("posted_pico", "urgency"), [(0, Urgency.REFUSING), (2 * PICO, Urgency.SOON)]
)
def test_a_balance_that_ends_is_told(posted_pico: int, urgency: Urgency) -> None:
    assert said(replace(BALANCE, posted_pico=posted_pico)) == [(urgency, "billing")]


@pytest.mark.parametrize(
    ("used", "is_hard", "urgency"),
    [(800, True, Urgency.SOON), (1000, True, Urgency.REFUSING), (1000, False, Urgency.LOOK)],
)
def test_a_quota_that_fills_is_told(used: int, is_hard: bool, urgency: Urgency) -> None:
    assert said(BALANCE, quota(used, is_hard=is_hard)) == [(urgency, "limits")]


def test_what_refuses_requests_comes_first() -> None:
    failing = replace(RECENT, errors=50)

    found = said(replace(BALANCE, posted_pico=0), quota(900), recent=failing)

    assert [urgency for urgency, _ in found] == sorted(Urgency)


def test_a_few_errors_are_no_share() -> None:
    assert said(recent=replace(RECENT, requests=10, errors=9)) == []


@pytest.fixture
def fresh(django_database: None) -> Side:
    """An organization that nobody has used."""
    return make_side("fresh")


def test_a_new_organization_is_told_what_to_do_first(fresh: Side) -> None:
    page = fresh.members[Role.DEVELOPER].get(f"/console/{slug_of(fresh)}/")

    assert page.status_code == 200
    assert "/v1/chat/completions" in page.text
    assert "headrace summarize" in page.text


def test_the_balance_is_told_to_those_who_may_see_it(fresh: Side) -> None:
    path = f"/console/{slug_of(fresh)}/"

    assert "$100.00" in fresh.members[Role.BILLING].get(path).text
    assert "$100.00" not in fresh.members[Role.VIEWER].get(path).text
