"""Balances rebuilt from the log, in a place of their own, come to what the books say."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from billing.contracts import UsageCounts
from billing.facade import replay, settle, void
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers
from tests.billing.cast import Tenant, used
from tests.billing.test_books import tampered

MANAGE = Path(__file__).parents[2] / "manage.py"


@pytest.fixture
def busy(acme: Tenant) -> Tenant:
    """A tenant with requests settled within and beyond their holds, voided, and open."""
    settle([used(acme.held(), UsageCounts(50, 10, 40))])
    settle([used(acme.held(), UsageCounts(60, 0, 1_000))])
    void([acme.held().request_id])
    acme.held()
    return acme


def test_the_log_comes_to_the_books(busy: Tenant) -> None:
    report = replay()

    assert report.differences == ()
    assert report.entries >= 8
    assert report.accounts >= 8


def test_nothing_stays_behind(busy: Tenant) -> None:
    replay()

    assert replay().differences == ()


@pytest.mark.parametrize(
    ("table", "statement", "account"),
    [
        ("billing_account", "UPDATE {} SET posted_pico = posted_pico + 1", "posted"),
        ("billing_account", "UPDATE {} SET held_pico = held_pico - 1", "held"),
        ("billing_account", "UPDATE {} SET funded_pico = funded_pico - 1", "funded"),
        ("billing_usage_event", "UPDATE {} SET charge_pico = charge_pico - 1", "ledger: credit"),
        ("billing_usage_event", "DELETE FROM {}", "ledger: revenue"),
        ("billing_hold", "UPDATE {} SET state = 'voided', closed_at = now()", "held"),
        ("billing_credit_grant", "UPDATE {} SET remaining_pico = remaining_pico - 1", "grant "),
    ],
)
def test_what_does_not_follow_from_the_log_is_told(
    busy: Tenant, table: str, statement: str, account: str
) -> None:
    with tampered(busy, table, statement.format(table)):
        differences = replay().differences

    assert any(
        line.startswith(account) and str(busy.organization_id) in line for line in differences
    ), differences
    assert replay().differences == ()


def test_another_database_takes_the_log_and_keeps_it(busy: Tenant, tmp_path: Path) -> None:
    servers = EmbeddedServers(DataFolder(tmp_path / "other"), environment={}, durable=False)
    try:
        elsewhere = servers.start("a test").database_owner_url
        report = replay(elsewhere)
        with psycopg.connect(elsewhere) as copy:
            [(entries,)] = copy.execute("SELECT count(*) FROM headrace_replay.entry").fetchall()
        with pytest.raises(psycopg.errors.DuplicateSchema):
            replay(elsewhere)
    finally:
        servers.stop()

    assert report.differences == ()
    assert entries == report.entries


def test_the_command_fails_when_a_balance_does_not_follow(busy: Tenant) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(MANAGE), "replay"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    honest = run()
    statement = "UPDATE billing_account SET posted_pico = posted_pico + 1"
    with tampered(busy, "billing_account", statement):
        dishonest = run()

    assert honest.returncode == 0, honest.stderr
    assert "balances of the books" in honest.stdout
    assert (dishonest.returncode, str(busy.organization_id) in dishonest.stdout) == (1, True)
