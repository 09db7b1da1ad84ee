"""The embedded servers: who may start them, who finds them, and what a crash leaves behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.embedded_servers import (
    DataFolderBusyError,
    EmbeddedServers,
    running_addresses,
    servers_for_command,
)
from tests.house import wait_until

OWNER_THAT_WAITS = """
import sys
from pathlib import Path
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers

servers = EmbeddedServers(DataFolder(Path(sys.argv[1])), environment={}, durable=False)
servers.start("a test")
print(servers.postgres.child.pid, servers.valkey.child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


@pytest.fixture
def no_servers_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_HOUSEKEEPER_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def servers(folder: DataFolder) -> Iterator[EmbeddedServers]:
    servers = EmbeddedServers(folder, environment={}, durable=False)
    servers.start("the test")
    yield servers
    servers.stop()


def test_each_role_logs_in_and_only_the_housekeeper_passes_row_security(
    servers: EmbeddedServers,
) -> None:
    addresses = servers.addresses()

    seen = {}
    for url in (
        addresses.database_url,
        addresses.database_owner_url,
        addresses.database_housekeeper_url,
    ):
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
            assert row is not None
            seen[row[0]] = row[1:]

    assert seen == {
        "headrace_app": (False, False),
        "headrace_owner": (False, False),
        "headrace_housekeeper": (False, True),
    }


def test_the_app_enters_no_other_database_and_makes_no_temporary_table(
    servers: EmbeddedServers,
) -> None:
    url = servers.addresses().database_url

    for other in ("postgres", "template1"):
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(url.removesuffix("headrace") + other)
    with (
        psycopg.connect(url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="temporary"),
    ):
        connection.execute("CREATE TEMPORARY TABLE tenants_organization (id uuid)")


def test_strangers_without_the_password_are_refused(servers: EmbeddedServers) -> None:
    port = servers.postgres.port if servers.postgres else 0
    valkey = servers.valkey.port if servers.valkey else 0

    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgres://headrace_app:wrong@127.0.0.1:{port}/headrace")
    with pytest.raises(redis.AuthenticationError), redis.Redis(port=valkey) as stranger:
        stranger.ping()


def test_a_second_owner_is_refused_and_told_who_runs(
    servers: EmbeddedServers, folder: DataFolder
) -> None:
    with pytest.raises(DataFolderBusyError, match=f"the test .pid {os.getpid()}.*HEADRACE_DATA"):
        EmbeddedServers(folder, environment={}, durable=False).start("another")


@pytest.mark.usefixtures("no_servers_given")
def test_a_command_finds_the_running_servers_and_leaves_them_running(
    servers: EmbeddedServers, folder: DataFolder
) -> None:
    with servers_for_command(folder, "a command") as addresses:
        found = addresses

    assert found == servers.addresses()
    assert servers.postgres is not None and servers.postgres.child is not None
    assert servers.postgres.child.exit_code is None


@pytest.mark.usefixtures("no_servers_given")
def test_a_command_alone_starts_servers_and_stops_them(folder: DataFolder) -> None:
    with (
        servers_for_command(folder, "a command") as addresses,
        psycopg.connect(addresses.database_url) as connection,
    ):
        answer = connection.execute("SELECT 1").fetchone()

    assert answer == (1,)
    assert running_addresses(folder) is None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(addresses.database_url)


def test_data_and_queued_work_survive_a_restart(folder: DataFolder) -> None:
    first = EmbeddedServers(folder, environment={})
    addresses = first.start("the test")
    with psycopg.connect(addresses.database_owner_url) as connection:
        connection.execute("CREATE TABLE kept (value integer)")
        connection.execute("INSERT INTO kept VALUES (42)")
    with redis.Redis.from_url(addresses.redis_url) as client:
        client.set("kept", "43")
    first.stop()

    second = EmbeddedServers(folder, environment={})
    addresses = second.start("the test")
    try:
        with psycopg.connect(addresses.database_owner_url) as connection:
            row = connection.execute("SELECT value FROM kept").fetchone()
        with redis.Redis.from_url(addresses.redis_url) as client:
            value = client.get("kept")
    finally:
        second.stop()

    assert row == (42,)
    assert value == b"43"


def test_servers_die_with_a_killed_owner_and_the_next_one_starts(folder: DataFolder) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_THAT_WAITS, str(folder.root)],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY / "platform")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        children = [int(word) for word in owner.stdout.readline().split()]
        owner.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(_runs(pid) for pid in children))
    servers = EmbeddedServers(folder, environment={}, durable=False)
    addresses = servers.start("the next one")
    with psycopg.connect(addresses.database_url) as connection:
        answer = connection.execute("SELECT 1").fetchone()
    servers.stop()

    assert len(children) == 2
    assert answer == (1,)


def test_a_pid_file_that_names_a_stranger_harms_neither(folder: DataFolder) -> None:
    first = EmbeddedServers(folder, environment={}, durable=False)
    first.start("the test")
    first.stop()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (folder.postgres / "postmaster.pid").write_text(f"{stranger.pid}\n{folder.postgres}\n")
        servers = EmbeddedServers(folder, environment={}, durable=False)
        servers.start("the test")
        servers.stop()
        survived = stranger.poll() is None
        stranger.kill()

    assert survived


def test_own_servers_need_all_three_roles(folder: DataFolder) -> None:
    with pytest.raises(SetUpError, match="DATABASE_OWNER_URL and DATABASE_HOUSEKEEPER_URL"):
        EmbeddedServers(folder, environment={"DATABASE_URL": "postgres://x@db/headrace"})


def test_secrets_are_made_once_and_private(folder: DataFolder) -> None:
    folder.create()
    first = folder.secrets()

    assert folder.secrets() == first
    assert (folder.root / "secrets.json").stat().st_mode & 0o777 == 0o600


def _runs(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
