"""Each usage event is counted in the rollups exactly once, whoever counts and whoever dies."""

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from django.db import connections, transaction

from billing.contracts import (
    BucketWidth,
    HoldRequest,
    UsageCounts,
    UsageQuery,
    UsageRow,
)
from billing.facade import hold, reconcile, roll_up, settle, usage_page
from billing.retry import call
from billing.usage.rollups import TAG_VALUES_PER_HOUR_MAX
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, at_once, make_tenant, used
from tests.billing.planted import Planted, planted, uproot
from tests.billing.test_books import tampered
from tests.books import rows
from tests.house import wait_until

EVER = UsageQuery(
    datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC), BucketWidth.SPAN
)
MODEL_HOURS_SQL = Path(__file__).parents[2].joinpath("billing", "sql", "0016_model_hours.sql")
TINY_EVENTS = """
    WITH event AS (
        INSERT INTO billing_usage_event (
            occurred_at, request_id, organization_id, project_id, key_id, ledger_tx_id, held_at,
            tier, currency, model_asked, model_served, uncached_input_tokens,
            cached_input_tokens, output_tokens, input_price_id, cached_input_price_id,
            output_price_id, input_micros_per_mtok, cached_input_micros_per_mtok,
            output_micros_per_mtok, cost_pico, charge_pico, finish_reason, source, queue_ms,
            prefill_ms, decode_ms)
        SELECT now() - n * interval '1 millisecond', uuidv7(), %(organization)s, %(project)s,
               %(key)s, uuidv7(), now(), 'interactive', 'USD', 'm', 'm', 1, 0, 0, uuidv7(),
               uuidv7(), uuidv7(), 20000, 0, 0, 20000, 20000, 'stop', 'measured', 0, 0, 0
          FROM generate_series(1, %(events)s) AS n
        RETURNING organization_id, request_id, occurred_at)
    INSERT INTO billing_usage_delta (organization_id, request_id, occurred_at, is_embedding)
    SELECT organization_id, request_id, occurred_at, false FROM event"""
ROLL_UP_AND_WAIT = """
import sys, time, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    connection.execute("SELECT billing_roll_up(1000, 200)")
    print("counted", flush=True)
    time.sleep(600)
"""


def total(tenant: Tenant) -> UsageRow | None:
    """All that the tenant ever used, as its report says."""
    [bucket] = usage_page(tenant.organization_id, EVER).buckets
    return bucket.rows[0] if bucket.rows else None


def counted(tenant: Tenant, table: str = "billing_usage_hour") -> tuple[int, int]:
    """Requests and charges in a rollup."""
    [(requests, charge_pico)] = rows(
        f"SELECT coalesce(sum(requests), 0), coalesce(sum(charge_pico), 0) FROM {table}"
        " WHERE organization_id = %s",
        tenant.organization_id,
    )
    return int(requests), int(charge_pico)


def queued(tenant: Tenant) -> int:
    """Events that no rollup has counted."""
    [(number,)] = rows(
        "SELECT count(*) FROM billing_usage_delta WHERE organization_id = %s",
        tenant.organization_id,
    )
    return int(number)


def spent(tenant: Tenant, requests: int) -> list[HoldRequest]:
    """So many settled requests of 100 pico-units each."""
    asked = [tenant.request() for _ in range(requests)]
    hold(asked)
    settle([used(one, UsageCounts(50, 10, 40)) for one in asked])
    return asked


def roll_up_in_steps(events_max: int) -> int:
    """Empty the queue as a consumer of small appetite."""
    counted = 0
    while True:
        [(step,)] = call("SELECT billing_roll_up(%s, 200)", [events_max], "housekeeper")
        if not step:
            return counted
        counted += step


def test_a_report_is_exact_before_and_after_the_rollup(acme: Tenant) -> None:
    spent(acme, 3)
    before = total(acme)
    assert (counted(acme), queued(acme)) == ((0, 0), 3)

    roll_up()

    assert (counted(acme), queued(acme)) == ((3, 300), 0)
    assert before == total(acme)
    assert before is not None
    assert (before.requests, before.errors, before.charge_pico) == (3, 0, 300)
    assert (before.uncached_input_tokens, before.cached_input_tokens) == (150, 30)
    spent(acme, 1)
    after = total(acme)
    assert after is not None and (after.requests, after.charge_pico) == (4, 400)


def test_counting_again_counts_nothing_twice(acme: Tenant) -> None:
    spent(acme, 2)

    for _ in range(3):
        roll_up()

    assert counted(acme) == (2, 200)


def test_consumers_at_once_share_the_queue(acme: Tenant, globex: Tenant) -> None:
    roll_up()
    for _ in range(4):
        spent(acme, 25)
        spent(globex, 25)

    shares = at_once([partial(roll_up_in_steps, 7)] * 4)

    assert sum(shares) == 200
    assert (counted(acme), counted(globex)) == ((100, 10_000), (100, 10_000))
    assert reconcile() == []


def test_a_deadlocks_victim_counts_again_and_loses_nothing(acme: Tenant, globex: Tenant) -> None:
    first, second = sorted((acme, globex), key=lambda tenant: tenant.organization_id)
    spent(acme, 1)
    spent(globex, 1)
    roll_up()
    spent(acme, 2)
    spent(globex, 2)
    lock = "SELECT FROM billing_usage_hour WHERE organization_id = %s FOR UPDATE"
    counts = threading.Event()

    def count() -> int:
        assert counts.wait(timeout=30)
        try:
            return roll_up()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(count)
        with tenant_scope(second.organization_id, "owner"), connections["owner"].cursor() as cursor:
            cursor.execute(lock, [second.organization_id])
            counts.set()
            # The consumer has the first tenant's row by then, and waits for the second's.
            wait_until(lambda: rows("SELECT FROM pg_locks WHERE NOT granted"))
            cursor.execute(
                "SELECT set_config('headrace.organization_id', %s, true)",
                [str(first.organization_id)],
            )
            cursor.execute(lock, [first.organization_id])
        answer.result(timeout=30)

    assert (counted(acme), counted(globex)) == ((3, 300), (3, 300))
    assert (queued(acme), queued(globex)) == (0, 0)


def test_an_event_that_commits_late_is_counted(acme: Tenant, globex: Tenant) -> None:
    late = acme.held()
    item = json.dumps(
        [
            {
                "id": str(late.request_id),
                "organization": str(acme.organization_id),
                "uncached": 60,
                "cached": 0,
                "output": 40,
                "finish_reason": "stop",
                "model_served": "served",
                "source": "measured",
                "queue_ms": 0,
                "prefill_ms": 0,
                "decode_ms": 0,
            }
        ]
    )
    with transaction.atomic(using="housekeeper"), connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT * FROM billing_settle_holds(%s::jsonb)", [item])

        def meanwhile() -> None:
            spent(globex, 1)
            roll_up()

        at_once([meanwhile])
        assert counted_elsewhere(globex) == (1, 100)

    roll_up()

    assert counted(acme) == (1, 100)


def counted_elsewhere(tenant: Tenant) -> tuple[int, int]:
    """`counted`, on a connection that is in no transaction."""
    [answer] = at_once([partial(counted, tenant)])
    return answer


def test_a_consumer_killed_before_its_commit_loses_nothing(acme: Tenant) -> None:
    spent(acme, 3)
    settings = connections["housekeeper"].settings_dict
    address = (
        f"postgresql://{settings['USER']}:{settings['PASSWORD']}@{settings['HOST']}"
        f":{settings['PORT']}/{settings['NAME']}"
    )
    consumer = subprocess.Popen(
        [sys.executable, "-c", ROLL_UP_AND_WAIT, address], stdout=subprocess.PIPE, text=True
    )
    assert consumer.stdout is not None
    with consumer.stdout:
        assert consumer.stdout.readline() == "counted\n"
        consumer.send_signal(signal.SIGKILL)
        consumer.wait(timeout=30)

    wait_until(lambda: roll_up() or counted(acme) == (3, 300))

    assert (counted(acme), queued(acme)) == ((3, 300), 0)
    assert reconcile() == []


def test_an_hour_keeps_so_many_values_of_a_tag_and_loses_no_request(acme: Tenant) -> None:
    at = datetime.now(UTC)
    values = [f"user-{n:04}" for n in range(TAG_VALUES_PER_HOUR_MAX + 50)]
    with planted(acme, [Planted(at, end_user=value) for value in values]):
        roll_up()
        with_others = rows(
            "SELECT tag_value, sum(requests)::int FROM billing_usage_tag_hour"
            " WHERE organization_id = %s GROUP BY 1 ORDER BY 1",
            acme.organization_id,
        )

    assert len(with_others) == TAG_VALUES_PER_HOUR_MAX + 1
    assert with_others[0] == ("(other)", 50)
    assert sum(number for _, number in with_others) == len(values)


def test_a_value_that_an_hour_knows_stays_its_own(acme: Tenant) -> None:
    at = datetime.now(UTC)
    many = [Planted(at, tags={"team": f"{n:04}"}) for n in range(TAG_VALUES_PER_HOUR_MAX)]
    with planted(acme, many):
        roll_up()
        with planted(acme, [Planted(at, tags={"team": t}) for t in ("0000", "new")]):
            roll_up()
            found = dict(
                rows(
                    "SELECT tag_value, sum(requests)::int FROM billing_usage_tag_hour"
                    " WHERE organization_id = %s AND tag_value IN ('0000', '(other)', 'new')"
                    " GROUP BY 1",
                    acme.organization_id,
                )
            )

    assert found == {"0000": 2, "(other)": 1}


def model_hours(tenant: Tenant) -> list[tuple[object, ...]]:
    """The tenant's hours of models, whole."""
    return rows(
        "SELECT * FROM billing_usage_model_hour WHERE organization_id = %s ORDER BY hour",
        tenant.organization_id,
    )


def test_hours_counted_before_there_were_models_are_filled_in(acme: Tenant) -> None:
    at = datetime.now(UTC)
    old = [Planted(at - n * timedelta(days=20), prefill_ms=n, output=1) for n in range(4)]
    with planted(acme, old):
        roll_up()
        before = model_hours(acme)
        script = MODEL_HOURS_SQL.read_text(encoding="utf-8")
        filling = script[script.index("CREATE FUNCTION billing_fill_model_hours") :]
        with planted(acme, [Planted(at)]):  # queued: not theirs to fill in
            with transaction.atomic(using="owner"), connections["owner"].cursor() as cursor:
                cursor.execute("TRUNCATE billing_usage_model_hour")
                cursor.execute(filling)
            after = model_hours(acme)

    assert len(before) == 4
    assert after == before


def plant_tiny(tenant: Tenant, events: int) -> None:
    """Events of one token each, that no rollup has counted."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(
            TINY_EVENTS,
            {
                "organization": tenant.organization_id,
                "project": tenant.project_id,
                "key": tenant.key_id,
                "events": events,
            },
        )


@pytest.mark.parametrize("events", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_tiny_events_sum_exactly(django_database: object, events: int) -> None:
    tenant = make_tenant("tiny")
    plant_tiny(tenant, 1_000)
    uproot(tenant)
    with connections["owner"].cursor() as cursor:
        # Until autovacuum comes by, what follows is planned as for the empty pages there are now.
        cursor.execute("ANALYZE billing_usage_event, billing_usage_delta")
    plant_tiny(tenant, events)
    try:
        before = total(tenant)
        wait_until(lambda: roll_up() == 0, timeout_s=250)
        after = total(tenant)
    finally:
        uproot(tenant)

    assert before == after
    assert after is not None
    assert (after.requests, after.charge_pico) == (events, events * 20_000)


@pytest.mark.parametrize(
    ("table", "statement", "finding"),
    [
        ("billing_usage_hour", "UPDATE {} SET output_tokens = output_tokens + 1", "hour's usage,"),
        ("billing_usage_hour", "DELETE FROM {}", "hour's usage,"),
        ("billing_usage_tag_hour", "UPDATE {} SET requests = requests + 1", "usage of a tag"),
        ("billing_usage_model_hour", "UPDATE {} SET errors = errors + 1", "usage of a model"),
        ("billing_usage_model_hour", "UPDATE {} SET cache_saved_pico = 1", "usage of a model"),
        (
            "billing_usage_model_hour",
            "UPDATE {} SET first_token_counts[3] = 0, first_token_counts[4] = 1",
            "times to the first token",
        ),
        ("billing_usage_delta", "DELETE FROM {}", "hour's usage,"),
        (
            "billing_usage_delta",
            "UPDATE {} SET occurred_at = occurred_at + interval '1 s'",
            "queued usage event does not exist",
        ),
    ],
)
def test_reconcile_finds_rollups_that_were_tampered_with(
    acme: Tenant, table: str, statement: str, finding: str
) -> None:
    tagged = replace(acme.request(), end_user="ann")
    hold([tagged])
    settle([used(tagged, UsageCounts(50, 10, 40))])
    roll_up()
    spent(acme, 1)
    assert reconcile() == []

    with tampered(acme, table, statement.format(table)):
        findings = reconcile()

    assert any(finding in line for line in findings), findings
    assert reconcile() == []
