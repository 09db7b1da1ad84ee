"""Reports, overviews and ingest over millions of usage events of one tenant.

`python -m benchmarks.usage` plants ten million events of the last thirty days (`--events`) in a
fresh database, adds them up as the rollups would, and reads them through billing's facade as role
`app`, under row-level security, and as pages of the console. Ingest is hold and settle in lists,
without fsync, so that what the size of the tables costs is not lost in the disk's noise; it is
measured at a hundredth of the events, and again at all of them.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from benchmarks.report import Row, percentile, print_report
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers

EVENTS = 10_000_000
FIRST_SHARE = 100
"""Ingest is measured first at one in so many of the events."""
DAYS = 30
CHUNK_EVENTS = 500_000
REPEATS = 7
INGEST_LIST = 50
INGEST_REQUESTS = 5_000
REPORT_MS_MAX = 300.0
REQUESTS_MS_MAX = 50.0
OVERVIEW_MS_MAX = 60.0
PAGE_MS_MAX = 150.0
SLUG = "planted"
ZONE = "Europe/Amsterdam"
EVENT_COLUMNS = (
    "occurred_at, request_id, organization_id, project_id, key_id, ledger_tx_id, held_at, tier,"
    " currency, model_asked, model_served, uncached_input_tokens, cached_input_tokens,"
    " output_tokens, input_price_id, cached_input_price_id, output_price_id,"
    " input_micros_per_mtok, cached_input_micros_per_mtok, output_micros_per_mtok, cost_pico,"
    " charge_pico, finish_reason, source, queue_ms, prefill_ms, decode_ms, end_user, tags"
)
PLANT = f"""
    INSERT INTO billing_usage_event ({EVENT_COLUMNS})
    SELECT %(start)s + n * %(step)s, uuidv7(), %(organization)s, (%(projects)s::uuid[])[1 + k %% 4],
           (%(keys)s::uuid[])[1 + k], uuidv7(), %(start)s + n * %(step)s,
           CASE WHEN n %% 10 = 0 THEN 'batch' ELSE 'interactive' END, 'USD', m, m,
           n %% 4096, n %% 1024, 64, %(price)s, %(price)s, %(price)s, 1000, 100, 5000, c, c,
           CASE WHEN n %% 5000 = 0 THEN 'engine_lost' ELSE 'stop' END, 'measured', n %% 7,
           20 + n %% 1024, 300,
           'user-' || u, jsonb_build_object('team', 'team-' || k %% 12)
      FROM (SELECT n, 'model-' || n %% 5 AS m, hashint8(n) & 511 AS u,
                   (hashint8(n) & 511) %% 20 AS k,
                   (n %% 4096) * 1000 + (n %% 1024) * 100 + 64 * 5000 AS c
              FROM generate_series(%(first)s, %(last)s) AS n) AS drawn"""
SUMS = """
    count(*), count(*) FILTER (WHERE billing_usage_is_error(finish_reason)),
    sum(uncached_input_tokens), sum(cached_input_tokens), sum(output_tokens), sum(cost_pico),
    sum(charge_pico)"""
TOTALS = (
    "requests, errors, uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico,"
    " charge_pico"
)
GROUP = "project_id, key_id, model_served, tier, currency"
HOURS = f"""
    INSERT INTO billing_usage_hour (organization_id, hour, {GROUP}, is_embedding, {TOTALS})
    SELECT organization_id, date_trunc('hour', occurred_at, 'UTC'), {GROUP}, false, {SUMS}
      FROM billing_usage_event WHERE model_asked LIKE 'model-%' GROUP BY 1, 2, 3, 4, 5, 6, 7"""
TAG_HOURS = f"""
    INSERT INTO billing_usage_tag_hour
        (organization_id, tag_name, hour, tag_value, {GROUP}, is_embedding, {TOTALS})
    SELECT organization_id, %(name)s, date_trunc('hour', occurred_at, 'UTC'), {{value}}, {GROUP},
           false, {SUMS}
      FROM billing_usage_event WHERE model_asked LIKE 'model-%%'
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9"""
MODEL_HOURS = f"""
    INSERT INTO billing_usage_model_hour (
        organization_id, hour, project_id, model_served, tier, currency, {TOTALS},
        cache_saved_pico, first_token_counts)
    SELECT organization_id, date_trunc('hour', occurred_at, 'UTC'), project_id, model_served, tier,
           currency, {SUMS},
           sum(billing_cache_saved(
               cached_input_tokens, input_micros_per_mtok, cached_input_micros_per_mtok)),
           ARRAY[{", ".join(f"count(*) FILTER (WHERE place = {n})::int" for n in range(1, 65))}]
      FROM (SELECT *, billing_latency_place(billing_first_token_ms(
                finish_reason, output_tokens, queue_ms, prefill_ms)) AS place
              FROM billing_usage_event WHERE model_asked LIKE 'model-%') AS placed
     GROUP BY 1, 2, 3, 4, 5, 6"""
LAST_MONTH = """
    DO $$ DECLARE month timestamptz := date_trunc('month', now(), 'UTC') - interval '1 month';
    BEGIN
        EXECUTE format('CREATE TABLE billing_usage_event_last_month PARTITION OF'
            ' billing_usage_event FOR VALUES FROM (%L) TO (%L)', month, month + interval '1 month');
        ALTER TABLE billing_usage_event_last_month ENABLE ROW LEVEL SECURITY;
        ALTER TABLE billing_usage_event_last_month FORCE ROW LEVEL SECURITY;
    END $$"""


@dataclass(frozen=True, slots=True)
class Planted:
    """Whose events they are, and their span."""

    organization_id: UUID
    project_ids: tuple[UUID, ...]
    key_ids: tuple[UUID, ...]
    start_at: datetime
    events: int


@contextmanager
def fresh_database(*, durable: bool = False) -> Iterator[None]:
    """Django on an empty database of its own, migrated; it goes with the benchmark."""
    import django
    from django.core.management import call_command
    from django.db import connections

    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = DataFolder(Path(name))
        servers = EmbeddedServers(folder, environment={}, durable=durable)
        os.environ.update(servers.start("a benchmark").environment())
        os.environ["HEADRACE_SECRET_KEY"] = folder.secrets().secret_key
        os.environ["HEADRACE_DATA"] = name
        os.environ["DJANGO_SETTINGS_MODULE"] = "headrace.settings"
        try:
            django.setup()
            call_command("migrate", database="owner", interactive=False, verbosity=0)
            yield
            connections.close_all()
        finally:
            servers.stop()


def make_tenant(events: int) -> Planted:
    """A tenant with 20 keys in 4 projects, and credit."""
    from billing.facade import grant_credit, open_account
    from tenants.facade import create_organization, create_project, issue_key

    organization_id = create_organization(SLUG, "Planted").organization_id
    open_account(organization_id)
    grant_credit(organization_id, 10**18, "first")
    projects = [create_project(organization_id, f"project {n}") for n in range(4)]
    keys = [issue_key(organization_id, projects[n % 4], f"key {n}").key_id for n in range(20)]
    start_at = datetime.now(UTC) - timedelta(days=DAYS)
    return Planted(organization_id, tuple(projects), tuple(keys), start_at, events)


def plant(planted: Planted, first: int, last: int) -> None:
    """The events of these numbers, in order of time, and their rollups never."""
    for begin in range(first, last, CHUNK_EVENTS):
        values = {
            "organization": planted.organization_id,
            "projects": list(planted.project_ids),
            "keys": list(planted.key_ids),
            "price": uuid7(),
            "start": planted.start_at,
            "step": timedelta(days=DAYS) / planted.events,
            "first": begin,
            "last": min(begin + CHUNK_EVENTS, last) - 1,
        }
        as_owner(planted, PLANT, values)


def as_owner(planted: Planted, statement: str, values: dict[str, Any] | None = None) -> None:
    """One statement past the functions, but within the tenant's scope."""
    from django.db import connections

    from tenants.facade import tenant_scope

    owner = connections["owner"]
    with tenant_scope(planted.organization_id, "owner"), owner.cursor() as cursor:
        cursor.execute(statement, values)


def settle_statistics() -> None:
    """What autovacuum does by itself in a house that stays up."""
    from django.db import connections

    with connections["owner"].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def ingest_per_s(planted: Planted, requests: int) -> float:
    """Requests held and settled per second, in lists, by one caller: of the fastest tenth, which
    other work on the machine has slowed least."""
    from billing.contracts import HoldRequest, ServiceTier, Settlement, UsageCounts
    from billing.facade import hold, publish_offer, quote, set_price, settle

    publish_offer("sold", "sold", "headrace", 8192, 2048)
    for token_class in ("input", "output"):
        set_price("sold", ServiceTier.INTERACTIVE, token_class, 1000)
    project_id, key_id = planted.project_ids[0], planted.key_ids[0]
    quoted = quote(planted.organization_id, project_id, "sold", ServiceTier.INTERACTIVE)
    rates = []
    for _ in range(requests // INGEST_LIST):
        asked = [
            HoldRequest(
                uuid7(),
                planted.organization_id,
                project_id,
                key_id,
                quoted,
                "sold",
                100,
                50,
                end_user="ann",
            )
            for _ in range(INGEST_LIST)
        ]
        began = time.perf_counter()
        assert all(outcome.refusal is None for outcome in hold(asked))
        settle(
            [Settlement(one.request_id, UsageCounts(60, 40, 20), "stop", "sold") for one in asked]
        )
        rates.append(INGEST_LIST / (time.perf_counter() - began))
    return percentile(rates, 90)


def roll_up_per_s() -> float:
    """Queued events counted per second, in steps as the worker takes them."""
    from billing.facade import roll_up

    began = time.perf_counter()
    return roll_up() / (time.perf_counter() - began)


def median_ms(action: Callable[[], object]) -> float:
    """Of REPEATS calls, after one that warms the caches."""
    action()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def report_rows(planted: Planted) -> list[Row]:
    """Thirty days in every grouping, and the newest requests."""
    from billing.contracts import BucketWidth, RequestFilter, UsageDimension, UsageQuery
    from billing.facade import recent_requests, usage_page

    end_at = planted.start_at + timedelta(days=DAYS)
    whole = UsageQuery(planted.start_at, end_at, BucketWidth.SPAN)
    days = replace(whole, width=BucketWidth.DAY)
    by_model, by_key = frozenset({UsageDimension.MODEL}), frozenset({UsageDimension.KEY})
    queries = {
        "30 days by model and day": replace(days, group_by=by_model),
        "30 days by key": replace(whole, group_by=by_key),
        "30 days by tag": replace(whole, tag="team", by_tag=True),
        "30 days by tag and day": replace(days, tag="team", by_tag=True),
    }
    bigger = {
        "30 days by end user": replace(whole, tag="user", by_tag=True),
        "30 days of half-hour zone": replace(days, group_by=by_model, time_zone="Asia/Kolkata"),
    }
    rows = []
    for name, query in (queries | bigger).items():
        page = usage_page(planted.organization_id, query)
        requests = sum(row.requests for bucket in page.buckets for row in bucket.rows)
        assert requests >= planted.events, (name, requests)
        took_ms = median_ms(partial(usage_page, planted.organization_id, query))
        wanted = "<= 1" if name in queries else ""
        rows.append(Row(name, took_ms, "limit", REPORT_MS_MAX, "ms", wanted))
    filters = {
        "recent requests": RequestFilter(),
        "recent requests of a key": RequestFilter(key_id=planted.key_ids[3]),
        "recent failed requests": RequestFilter(errors_only=True),
        "recent requests of a model": RequestFilter(model="model-3"),
        "requests of no such user": RequestFilter(tag="user", tag_value="nobody"),
    }
    for name, those in filters.items():
        took_ms = median_ms(partial(recent_requests, planted.organization_id, those, 51))
        rows.append(Row(name, took_ms, "limit", REQUESTS_MS_MAX, "ms", "<= 1"))
    return rows


def overview_rows(planted: Planted) -> list[Row]:
    """What a console asks at each look."""
    from billing.contracts import (
        BucketWidth,
        LatencyQuery,
        QuotaMetric,
        QuotaPeriod,
        QuotaScope,
        QuotaWanted,
        UsageDimension,
    )
    from billing.facade import (
        cache_savings,
        first_token_latencies,
        key_activity,
        preview_quota,
        usage_overview,
    )

    who, now = planted.organization_id, datetime.now(UTC)
    days = LatencyQuery(
        planted.start_at, now, group_by=frozenset({UsageDimension.MODEL}), buckets_max=DAYS + 1
    )
    hours = replace(days, start_at=now - timedelta(hours=24), width=BucketWidth.HOUR)
    limit = QuotaWanted(QuotaScope.PROJECT, QuotaMetric.TOKENS, QuotaPeriod.DAY, 10**6)
    quota = replace(limit, scope_id=planted.project_ids[0])
    looks: dict[str, tuple[Callable[[], object], float]] = {
        "overview": (partial(usage_overview, who, now, ZONE), OVERVIEW_MS_MAX),
        "first tokens of 24 hours by model": (
            partial(first_token_latencies, who, hours),
            OVERVIEW_MS_MAX,
        ),
        "first tokens of 30 days by model": (
            partial(first_token_latencies, who, days),
            REPORT_MS_MAX,
        ),
        "what caching saved in 30 days": (
            partial(cache_savings, who, planted.start_at, now),
            REPORT_MS_MAX,
        ),
        "14 days of twenty keys": (
            partial(key_activity, who, now, ZONE, planted.key_ids),
            REPORT_MS_MAX,
        ),
        "a limit's preview": (partial(preview_quota, who, quota, now, ZONE), REPORT_MS_MAX),
    }
    return [
        Row(name, median_ms(look), "limit", most_ms, "ms", "<= 1")
        for name, (look, most_ms) in looks.items()
    ]


def page_rows(planted: Planted) -> list[Row]:
    """Whole pages as their owner's browser asks for them, from the request to the last byte."""
    from urllib.parse import urlsplit

    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    from tenants.contracts import Role
    from tenants.facade import add_member

    owner = get_user_model().objects.create_user(email="owner@example.com")
    add_member(planted.organization_id, owner.pk, Role.OWNER)
    client = Client(SERVER_NAME=urlsplit(settings.PUBLIC_URL).hostname)
    client.force_login(owner, "allauth.account.auth_backends.AuthenticationBackend")

    def look(path: str) -> None:
        answer = client.get(f"/console/{SLUG}/{path}")
        assert answer.status_code == HTTPStatus.OK, (path, answer.status_code)

    pages = {"overview": "", "usage": "usage", "requests": "requests", "keys": "keys"}
    return [
        Row(f"the page {name}", median_ms(partial(look, path)), "limit", PAGE_MS_MAX, "ms", "<= 1")
        for name, path in pages.items()
    ]


def measure(events: int, ingested: int) -> list[Row]:
    """Plants, ingests at both sizes, and reads."""
    planted = make_tenant(events)
    as_owner(planted, LAST_MONTH)
    few = events // FIRST_SHARE
    plant(planted, 0, few)
    ingest_per_s(planted, ingested)
    settle_statistics()
    at_few = ingest_per_s(planted, ingested)
    roll_up_per_s()
    plant(planted, few, events)
    as_owner(planted, HOURS)
    as_owner(planted, MODEL_HOURS)
    values = {"team": "tags ->> 'team'", "user": USER}
    for name, value in values.items():
        as_owner(planted, TAG_HOURS.format(value=value), {"name": name})
    ingest_per_s(planted, ingested)
    settle_statistics()
    at_all = ingest_per_s(planted, ingested)
    counted = roll_up_per_s()
    return [
        *report_rows(planted),
        *overview_rows(planted),
        *page_rows(planted),
        Row(f"ingest at {events:,}", at_all, f"at {few:,}", at_few, "requests/s", ">= 0.9"),
        Row("rolled up", counted, "ingested", at_all, "events/s", ">= 1"),
    ]


USER = "CASE WHEN right(end_user, 3) < '200' THEN end_user ELSE '(other)' END"
"""As if an hour had kept two hundred of them."""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.usage")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--ingested", type=int, default=INGEST_REQUESTS)
    options = parser.parse_args()
    with fresh_database():
        rows = measure(options.events, options.ingested)
    print_report(f"Usage at {options.events:,} events", rows, threads=1)


if __name__ == "__main__":
    main()
