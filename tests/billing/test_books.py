"""Credit, the sweep, partitions and reconciliation."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.db import connections
from uuid_utils.compat import uuid7

from billing.contracts import PICO, AccountMissing, CreditConflict, UsageCounts, UsageSource
from billing.facade import (
    balance,
    grant_credit,
    open_account,
    reconcile,
    renew,
    set_daily_tokens,
    settle,
    sweep,
)
from tenants.facade import create_organization, tenant_scope
from tests.billing.cast import Tenant, at_once, make_tenant, used

HOUR_S = 3600
MANAGE = Path(__file__).parents[2] / "manage.py"


def age(tenant: Tenant, request_id: UUID, seconds: int) -> None:
    """Make a hold look as if nobody had renewed it for so long."""
    with (
        tenant_scope(tenant.organization_id, "owner"),
        connections["owner"].cursor() as cursor,
    ):
        cursor.execute(
            "UPDATE billing_hold SET renewed_at = now() - make_interval(secs => %s) WHERE id = %s",
            [seconds, request_id],
        )
        assert cursor.rowcount == 1


def test_the_same_grant_twice_is_credited_once(acme: Tenant) -> None:
    at_once([lambda: grant_credit(acme.organization_id, PICO, "topup-1") for _ in range(6)])

    assert acme.balance().posted_pico == 6 * PICO
    assert reconcile() == []


def test_a_key_used_for_another_amount_is_a_conflict(acme: Tenant) -> None:
    grant_credit(acme.organization_id, PICO, "topup-1")

    with pytest.raises(CreditConflict):
        grant_credit(acme.organization_id, 2 * PICO, "topup-1")
    assert acme.balance().posted_pico == 6 * PICO


def test_two_tenants_may_use_the_same_key(acme: Tenant, globex: Tenant) -> None:
    grant_credit(acme.organization_id, PICO, "topup-1")
    grant_credit(globex.organization_id, PICO, "topup-1")

    assert acme.balance() == globex.balance()


@pytest.mark.parametrize("amount_pico", [0, -1])
def test_a_grant_adds_money(acme: Tenant, amount_pico: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        grant_credit(acme.organization_id, amount_pico, "odd")


def test_there_is_no_money_without_an_account(django_database: object) -> None:
    bare = create_organization(f"bare-{uuid4().hex[:12]}", "bare").organization_id

    with pytest.raises(CreditConflict):
        grant_credit(bare, PICO, "first")
    with pytest.raises(AccountMissing):
        balance(bare)
    assert reconcile() == []


def test_opening_an_account_again_changes_nothing(acme: Tenant) -> None:
    before = acme.balance()

    open_account(acme.organization_id)

    assert acme.balance() == before


def test_a_floor_below_zero_is_credit_the_operator_extends(django_database: object) -> None:
    tenant = make_tenant(credit_pico=0, floor_pico=-100)

    settle([used(tenant.held(), UsageCounts(60, 0, 40))])

    assert tenant.balance().posted_pico == -100
    assert reconcile() == []


def test_the_sweep_voids_silent_holds_with_an_estimated_event(acme: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 1_000)
    before = acme.balance()
    lost, alive = acme.held(), acme.held()
    age(acme, lost.request_id, HOUR_S)
    age(acme, alive.request_id, HOUR_S)
    renew([alive.request_id])

    report = sweep(120, 900)

    assert lost.request_id in report.voided
    assert alive.request_id not in report.voided
    told = acme.receipt(lost)
    assert (told.state, told.charge_pico, told.source) == ("voided", 0, UsageSource.ESTIMATED)
    assert told.counts == UsageCounts()
    assert told.ledger_transaction_id is not None
    assert acme.receipt(alive).state == "open"
    assert acme.balance().held_pico == before.held_pico + 100
    assert acme.balance().posted_pico == before.posted_pico
    assert reconcile() == []


def test_a_lapsed_hold_waits_for_the_engines_journal(acme: Tenant) -> None:
    request = acme.held()
    age(acme, request.request_id, 600)

    assert request.request_id not in sweep(120, 900).voided
    [settled] = settle([used(request, UsageCounts(60, 0, 40))])

    assert settled.posted


def test_a_finish_after_the_sweep_is_answered_and_not_charged(acme: Tenant) -> None:
    request = acme.held()
    age(acme, request.request_id, HOUR_S)
    sweep(120, 900)
    before = acme.balance()

    [late] = settle([used(request, UsageCounts(60, 0, 40))])

    assert (late.posted, late.charge_pico) == (False, 0)
    assert acme.balance() == before
    assert reconcile() == []


def test_sweeps_at_once_share_the_holds(acme: Tenant) -> None:
    requests = [acme.held() for _ in range(20)]
    for request in requests:
        age(acme, request.request_id, HOUR_S)

    reports = at_once([lambda: sweep(120, 900) for _ in range(4)])

    swept = [request_id for report in reports for request_id in report.voided]
    assert len(swept) == len(set(swept))
    assert {request.request_id for request in requests} <= set(swept)
    assert reconcile() == []


def test_a_hold_that_cannot_be_closed_stops_no_other(acme: Tenant, globex: Tenant) -> None:
    set_daily_tokens(acme.organization_id, 1_000)
    requests = [acme.held(), acme.held(), globex.held()]

    def shift(tokens: int) -> None:
        with tenant_scope(acme.organization_id, "owner"), connections["owner"].cursor() as cursor:
            cursor.execute(
                "UPDATE billing_quota_counter SET held_amount = held_amount + %s"
                " WHERE organization_id = %s",
                [tokens, acme.organization_id],
            )
            assert cursor.rowcount == 1

    for tenant, request in zip((acme, acme, globex), requests, strict=True):
        age(tenant, request.request_id, HOUR_S)
    shift(-100)

    report = sweep(120, 900)

    first, second, other = (request.request_id for request in requests)
    assert {first, other} <= set(report.voided)
    assert list(report.stuck) == [second]
    assert "billing_quota_counter" in report.stuck[second]
    assert globex.balance().held_pico == 0
    assert acme.receipt(requests[1]).state == "open"
    assert acme.balance().held_pico == 100
    # It waits for its turn, and goes once its books are put right.
    assert second not in sweep(120, 900).stuck
    shift(100)
    age(acme, second, HOUR_S)
    assert second in sweep(120, 900).voided
    assert acme.balance().held_pico == 0
    assert reconcile() == []


def test_the_app_cannot_keep_a_sweep_from_its_work(acme: Tenant) -> None:
    request = acme.held()
    age(acme, request.request_id, HOUR_S)
    every_lock_it_may_take = (
        "SELECT FROM billing_hold; SELECT FROM billing_usage_event;"
        "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest("
        " ARRAY['billing_sweep_holds', 'billing_ensure_partitions']) AS name"
    )

    with tenant_scope(acme.organization_id), connections["default"].cursor() as cursor:
        cursor.execute(every_lock_it_may_take)
        during = sweep(120, 900)

    assert request.request_id in during.voided


def test_sweeps_and_settles_at_once_close_each_hold_once(acme: Tenant) -> None:
    requests = [acme.held() for _ in range(10)]
    for request in requests:
        age(acme, request.request_id, HOUR_S)

    at_once(
        [
            lambda: sweep(120, 900),
            lambda: settle([used(one, UsageCounts(60, 0, 40)) for one in requests]),
            lambda: sweep(120, 900),
        ]
    )

    assert acme.balance().held_pico == 0
    assert reconcile() == []


def test_partitions_lie_ready_for_the_coming_months(django_database: object) -> None:
    sweep(120, 900)

    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('billing_usage_event_' || to_char("
            " (now() + make_interval(months => n)) AT TIME ZONE 'UTC', 'YYYY_MM'))"
            " FROM generate_series(0, 3) n"
        )
        partitions = [row[0] for row in cursor.fetchall()]
    assert None not in partitions
    assert len(set(partitions)) == 4


TWIN = """
    CREATE TEMP TABLE twin AS SELECT * FROM billing_usage_event;
    UPDATE twin SET occurred_at = occurred_at + interval '1 minute';
    INSERT INTO billing_usage_event SELECT * FROM twin;
    DROP TABLE twin"""


@contextmanager
def tampered(tenant: Tenant, table: str, statement: str) -> Iterator[None]:
    """Change one tenant's books as only the tables' owner can, and put them back afterwards."""
    with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE saved AS SELECT * FROM {table}")
        cursor.execute(statement)
    try:
        yield
    finally:
        with tenant_scope(tenant.organization_id, "owner"), connections["owner"].cursor() as cursor:
            cursor.execute(f"DELETE FROM {table}")
            cursor.execute(f"INSERT INTO {table} SELECT * FROM saved")
            cursor.execute("DROP TABLE saved")


UNBALANCED = """
    ALTER TABLE billing_ledger_leg DISABLE TRIGGER billing_ledger_balanced;
    UPDATE billing_ledger_leg SET amount_pico = amount_pico + 1 WHERE amount_pico > 0;
    ALTER TABLE billing_ledger_leg ENABLE TRIGGER billing_ledger_balanced"""


@pytest.mark.parametrize(
    ("table", "statement", "finding"),
    [
        ("billing_ledger_leg", UNBALANCED, "do not sum to 0"),
        (
            "billing_ledger_leg",
            "UPDATE billing_ledger_leg SET amount_pico = amount_pico * 2",
            "posted balance",
        ),
        ("billing_hold", "UPDATE billing_hold SET account_id = uuidv7()", "hold's account"),
        ("billing_hold", "UPDATE billing_hold SET output_price_id = uuidv7()", "price rows"),
        (
            "billing_hold",
            "UPDATE billing_hold SET cached_input_micros_per_mtok = 0",
            "price rows",
        ),
        (
            "billing_hold",
            "UPDATE billing_hold SET output_price_id = cached_input_price_id",
            "price rows",
        ),
        ("billing_hold", "UPDATE billing_hold SET tier = 'batch'", "price rows"),
        ("billing_account", "UPDATE billing_account SET held_pico = held_pico + 1", "held balance"),
        (
            "billing_account",
            "UPDATE billing_account SET posted_pico = posted_pico + 1",
            "posted balance",
        ),
        ("billing_usage_event", "DELETE FROM billing_usage_event", "has no usage event"),
        (
            "billing_usage_event",
            "UPDATE billing_usage_event SET request_id = uuidv7()",
            "belongs to no closed hold",
        ),
        (
            "billing_usage_event",
            "UPDATE billing_usage_event SET charge_pico = charge_pico - 1",
            "charges something else",
        ),
        ("billing_usage_event", TWIN, "more than one usage event"),
        (
            "billing_quota_counter",
            "UPDATE billing_quota_counter SET used_amount = used_amount + 1",
            "quota counter",
        ),
    ],
)
def test_reconcile_finds_books_that_were_tampered_with(
    acme: Tenant, table: str, statement: str, finding: str
) -> None:
    set_daily_tokens(acme.organization_id, 1_000)
    settle([used(acme.held(), UsageCounts(60, 0, 40))])
    acme.held()
    assert reconcile() == []

    with tampered(acme, table, statement):
        findings = reconcile()

    assert any(finding in line for line in findings), findings
    assert reconcile() == []


def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py as an operator does."""
    return subprocess.run(
        [sys.executable, str(MANAGE), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_fails_when_the_ledger_was_tampered_with(acme: Tenant) -> None:
    honest = manage("reconcile")
    statement = "UPDATE billing_ledger_leg SET amount_pico = amount_pico * 2"
    with tampered(acme, "billing_ledger_leg", statement):
        dishonest = manage("reconcile")

    *told, verdict = honest.stdout.splitlines()
    assert honest.returncode == 0
    assert verdict == f"The books agree: {len(told)} invariants hold."
    assert all(line.startswith("ok ") and " rows of " in line for line in told)
    assert dishonest.returncode == 1
    assert str(acme.organization_id) in dishonest.stdout
    assert "invariants are broken" in dishonest.stderr


def test_an_event_outside_the_prepared_months_is_reported(acme: Tenant) -> None:
    request_id = uuid7()
    columns = "organization_id, project_id, key_id, ledger_tx_id, model_asked, model_served"
    with tenant_scope(acme.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(
            f"INSERT INTO billing_usage_event (occurred_at, request_id, {columns}, held_at, tier,"
            " currency, uncached_input_tokens, cached_input_tokens, output_tokens, input_price_id,"
            " cached_input_price_id, output_price_id, input_micros_per_mtok,"
            " cached_input_micros_per_mtok, output_micros_per_mtok, cost_pico, charge_pico,"
            " finish_reason, source, queue_ms, prefill_ms, decode_ms)"
            " VALUES ('2001-01-01Z', %s, %s, uuidv7(), uuidv7(), uuidv7(), 'm', 'm', now(),"
            " 'interactive', 'USD', 0, 0, 0, uuidv7(), uuidv7(), uuidv7(), 0, 0, 0, 0, 0, 'stop',"
            " 'measured', 0, 0, 0)",
            [request_id, acme.organization_id],
        )

    findings = reconcile()
    with tenant_scope(acme.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute("DELETE FROM billing_usage_event WHERE request_id = %s", [request_id])
    assert any("default partition" in line for line in findings)
