"""The housekeeper may write the past into the books, as a whole; nobody else is heard."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import ProgrammingError, connections

from billing.contracts import PICO, UsageCounts
from billing.facade import (
    clock_at,
    credit_grants,
    grant_credit,
    hold,
    prepare_past,
    receipt,
    reconcile,
    roll_up,
    settle,
)
from tests.billing.cast import Tenant, used
from tests.books import rows

DAY = timedelta(days=1)


def past(days: int) -> datetime:
    """At noon of a day some days ago."""
    return datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - days * DAY


def earlier(minutes: int) -> datetime:
    """Of the same month: usage of a month that nobody closes is a finding of every later test."""
    now = datetime.now(UTC)
    month_began_at = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return max(now - timedelta(minutes=minutes), month_began_at)


def test_requests_of_one_list_have_been_held_and_settled_at_times_of_their_own(
    acme: Tenant,
) -> None:
    prepare_past(past(40))
    requests = [acme.request(), acme.request()]
    held = {one.request_id: earlier(40 - 10 * n) for n, one in enumerate(requests)}
    settled = {request_id: at + timedelta(seconds=3) for request_id, at in held.items()}

    with clock_at(earlier(1), held):
        hold(requests, using="housekeeper")
    with clock_at(earlier(1), settled):
        settle([used(one, UsageCounts(10, 0, 5)) for one in requests], using="housekeeper")
    roll_up()

    for one in requests:
        shown = receipt(acme.organization_id, one.request_id)
        assert shown.held_at == held[one.request_id]
        assert shown.settled_at == settled[one.request_id]
        assert rows(
            "SELECT created_at FROM billing_ledger_tx WHERE idempotency_key = %s",
            f"usage:{one.request_id}",
        ) == [(settled[one.request_id],)]
    assert reconcile() == []


def test_credit_given_in_the_past_was_in_force_then(acme: Tenant) -> None:
    with clock_at(past(40)):
        grant_credit(acme.organization_id, PICO, "long ago")

    [given, *_] = credit_grants(acme.organization_id)
    assert given.effective_at == given.posted_at == given.created_at == past(40)


def test_the_clock_is_now_again_afterwards(acme: Tenant) -> None:
    with clock_at(past(40)):
        pass

    request = acme.held()
    settle([used(request, UsageCounts(1, 0, 1))], using="housekeeper")

    shown = receipt(acme.organization_id, request.request_id)
    assert shown.settled_at is not None
    assert datetime.now(UTC) - shown.settled_at < timedelta(minutes=1)


def test_the_app_is_not_heard(acme: Tenant) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT set_config('headrace.clock', %s, false)", [past(40).isoformat()])
    try:
        request = acme.held()
        settle([used(request, UsageCounts(1, 0, 1))])
    finally:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT set_config('headrace.clock', '', false)")

    shown = receipt(acme.organization_id, request.request_id)
    assert shown.settled_at is not None
    assert datetime.now(UTC) - max(shown.held_at, shown.settled_at) < timedelta(minutes=1)


def test_nobody_makes_room_for_a_past_too_long_ago(django_database: object) -> None:
    with pytest.raises(ProgrammingError), connections["default"].cursor() as cursor:
        cursor.execute("SELECT billing_ensure_partitions(0, now() - interval '1 month')")
