"""Spark lines of keys: the last fourteen local days of each, all in one read."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connections
from django.test.utils import CaptureQueriesContext

from billing.facade import key_activity, roll_up
from tenants.facade import issue_key
from tests.billing.cast import Tenant
from tests.billing.planted import Planted, planted

ZONE = "Europe/Amsterdam"
NOW = datetime(2026, 5, 14, 22, 30, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
DAY = timedelta(days=1)


def test_each_keys_days_are_those_of_the_clock(acme: Tenant) -> None:
    quiet = issue_key(acme.organization_id, acme.project_id, "quiet").key_id
    other = issue_key(acme.organization_id, acme.project_id, "other").key_id
    midnight = datetime(2026, 5, 14, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
    events = [
        Planted(NOW, uncached=3, cached=2, output=1),
        Planted(midnight, uncached=10),
        Planted(midnight - timedelta(seconds=1), uncached=20),
        Planted(midnight - 13 * DAY, uncached=30, key_id=other),
        Planted(midnight - 13 * DAY - timedelta(seconds=1), uncached=40, key_id=other),
    ]
    with planted(acme, events):
        roll_up()
        with CaptureQueriesContext(connections["default"]) as captured:
            keys = [acme.key_id, other, quiet]
            seen = key_activity(acme.organization_id, NOW, ZONE, keys)
            only = key_activity(acme.organization_id, NOW, ZONE, [other])

    assert seen[acme.key_id].tokens == (*[0] * 12, 20, 16)
    assert seen[acme.key_id].requests == (*[0] * 12, 1, 2)
    assert seen[other].tokens == (30, *[0] * 13)
    assert quiet not in seen
    reads = [query for query in captured.captured_queries if "FROM billing" in query["sql"]]
    assert len(reads) == 2
    assert only == {other: seen[other]}
    assert sum(query["sql"].count("billing_usage_hour") for query in reads) >= 1


def test_nobody_sees_anothers_keys(acme: Tenant, globex: Tenant) -> None:
    with planted(globex, [Planted(NOW)]):
        keys = [acme.key_id, globex.key_id]
        assert key_activity(acme.organization_id, NOW, ZONE, keys) == {}
        assert key_activity(globex.organization_id, NOW, ZONE, []) == {}
