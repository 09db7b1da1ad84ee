"""manage.py: it finds the packages and the servers by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.environment_file import load_environment_file


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell without any of our variables but the data folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HEADRACE_DATA": str(tmp_path / "data"),
    }


def _manage(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "manage.py"), *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_command_brings_its_own_servers_and_leaves_none(environment: dict[str, str]) -> None:
    done = _manage(environment, "migrate", "--database", "owner", "--verbosity", "0")
    left = [
        process
        for process in Path("/proc").glob("[0-9]*/cmdline")
        if environment["HEADRACE_DATA"].encode() in _read(process)
    ]

    assert done.returncode == 0, done.stderr
    assert (DataFolder(Path(environment["HEADRACE_DATA"])).postgres / "PG_VERSION").exists()
    assert left == []


@pytest.mark.parametrize(
    "command", [("help",), ("check",), ("makemigrations", "--check", "--dry-run")]
)
def test_commands_without_a_database_start_no_server(
    environment: dict[str, str], command: tuple[str, ...]
) -> None:
    done = _manage(environment, *command)

    assert done.returncode == 0, done.stderr
    assert not Path(environment["HEADRACE_DATA"]).exists()


def test_with_servers_of_its_own_a_house_still_makes_its_secret_key(
    environment: dict[str, str],
) -> None:
    own = {
        "DATABASE_URL": "postgres://headrace_app:x@127.0.0.1:9/headrace",
        "REDIS_URL": "redis://127.0.0.1:9/0",
        "HEADRACE_SECRET_KEY": "",
    }

    done = _manage(
        environment | own,
        *("shell", "--no-imports", "-c"),
        "from django.conf import settings; print(settings.SECRET_KEY)",
    )

    secrets = DataFolder(Path(environment["HEADRACE_DATA"])).secrets()
    assert done.stdout.strip() == secrets.secret_key, done.stderr
    assert not DataFolder(Path(environment["HEADRACE_DATA"])).postgres.exists()


def test_a_data_folder_that_cannot_be_made_is_a_plain_error(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    done = _manage(environment | {"HEADRACE_DATA": str(tmp_path / "file" / "data")}, "migrate")

    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot create the data folder")


def test_the_environment_file_fills_in_what_the_environment_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".env"
    file.write_text('# a comment\n\nHEADRACE_PORT=9000\nHEADRACE_LOG_LEVEL="DEBUG"\n')
    monkeypatch.setenv("HEADRACE_PORT", "8000")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "so that it is taken back after the test")
    monkeypatch.delenv("HEADRACE_LOG_LEVEL")

    load_environment_file(file)

    assert os.environ["HEADRACE_PORT"] == "8000"
    assert os.environ["HEADRACE_LOG_LEVEL"] == "DEBUG"


def test_a_line_that_is_no_assignment_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("HEADRACE_PORT 9000\n")

    with pytest.raises(SetUpError, match="line 1: expected NAME=value"):
        load_environment_file(file)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
