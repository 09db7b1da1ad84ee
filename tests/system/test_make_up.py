"""What `make up` runs: it serves, stops without leaving anything, and says what went wrong."""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from headrace.standalone.data_folder import REPOSITORY
from tests.house import free_port, wait_until

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 90
PACKAGES = f"{sysconfig.get_path('purelib')}:{REPOSITORY / 'platform'}:{REPOSITORY}"
PROCESSES = ("postgres", "valkey", "engine", "stripe_fake", "web", "worker", "beat")


class Up:
    """One `make up` under test: its output so far, and its process."""

    def __init__(self, environment: Mapping[str, str], prefix: Sequence[str], python: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*prefix, python, "-m", "headrace.standalone", "up"],
            cwd=REPOSITORY,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_up(self) -> None:
        """Until it says so; fails with its output when it ends before."""
        wait_until(lambda: self._is_up() or self.process.poll() is not None, START_TIMEOUT_S)
        assert self._is_up(), self.output

    def wait_end(self) -> int:
        """Its exit code."""
        code = self.process.wait(STOP_TIMEOUT_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def descendants(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children

    def _is_up(self) -> bool:
        return "Ctrl-C stops everything" in self.output


@pytest.fixture
def environment(tmp_path: Path, bundle_folder: Path) -> dict[str, str]:
    """What a shell would have, and where this house lives."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        # Longer than the 107 bytes that the path of a unix socket may have.
        "HEADRACE_DATA": str(tmp_path / ("long" * 30) / "data"),
        "HEADRACE_PORT": str(free_port()),
        "HEADRACE_MODEL_BUNDLE": str(bundle_folder),
        "HEADRACE_DEMO_HISTORY": "0",
    }


@contextmanager
def up(
    environment: Mapping[str, str], prefix: Sequence[str] = (), python: str = sys.executable
) -> Iterator[Up]:
    """A `make up` that is gone afterwards, whatever the test found."""
    running = Up(environment, prefix, python)
    try:
        yield running
    finally:
        running.process.terminate()
        running.wait_end()


@pytest.mark.long
def test_it_serves_stops_clean_and_starts_again_on_the_same_data(
    environment: dict[str, str],
) -> None:
    demo_file = Path(environment["HEADRACE_DATA"]) / "demo.json"
    with up(environment) as first:
        first.wait_up()
        demo = json.loads(demo_file.read_text())
        answer = _ask(demo)
        descendants = first.descendants()
        first.process.send_signal(signal.SIGTERM)
        exit_code = first.wait_end()
    alive = [each for each in descendants if _is_alive(each)]
    with up(environment) as second:
        second.wait_up()
        demo_of_second = json.loads(demo_file.read_text())

    assert "Paris" in first.output
    assert all(f"{name:<8} |" in first.output for name in PROCESSES)
    assert demo["base_url"] == f"http://127.0.0.1:{environment['HEADRACE_PORT']}/v1"
    assert set(demo["keys"]) == {"acme", "globex", "initech"}
    assert demo_file.stat().st_mode & 0o777 == 0o600
    assert answer
    assert len(descendants) >= len(PROCESSES)
    assert exit_code == 0
    assert alive == []
    assert demo_of_second == demo


@pytest.mark.long
def test_the_first_start_makes_up_a_past_once_and_says_where_to_look_at_it(
    environment: dict[str, str],
) -> None:
    given = environment | {"HEADRACE_DEMO_HISTORY": "1"}
    counts = []
    for _ in range(2):
        with up(given) as running:
            running.wait_up()
            counts.append(_events_reconciled(given))
    passwords = json.loads((Path(given["HEADRACE_DATA"]) / "demo.json").read_text())["passwords"]

    assert counts[0] > 10_000
    assert counts[1] - counts[0] == 1  # each start asks one question
    assert f"http://127.0.0.1:{given['HEADRACE_PORT']}/console/" in running.output
    assert set(passwords) == {"owner@acme.example", "operator@headrace.example"}
    for email, password in passwords.items():
        assert f"{email}  {password}" in running.output


@pytest.mark.long
def test_the_death_of_a_child_stops_the_rest_and_is_named(environment: dict[str, str]) -> None:
    with up(environment) as running:
        running.wait_up()
        descendants = running.descendants()
        engine = next(each for each in descendants if "inference.server" in each.cmdline())
        engine.kill()
        exit_code = running.wait_end()
    alive = [each for each in descendants if _is_alive(each)]

    assert exit_code == 1
    assert "engine died: killed by signal 9 (SIGKILL)" in running.output
    assert alive == []


@pytest.mark.long
def test_a_second_one_on_the_same_data_is_refused(environment: dict[str, str]) -> None:
    with up(environment) as first:
        first.wait_up()
        with up(environment | {"HEADRACE_PORT": str(free_port())}) as second:
            exit_code = second.wait_end()
        still_running = first.process.poll() is None

    assert exit_code == 1
    assert f"in use by `make up` (pid {first.process.pid})" in second.output
    assert still_running


@pytest.mark.long
def test_a_supervisor_killed_hard_leaves_no_process_and_data_that_start_again(
    environment: dict[str, str],
) -> None:
    with up(environment) as first:
        first.wait_up()
        descendants = first.descendants()
        first.process.kill()
        first.wait_end()
    wait_until(lambda: not any(_is_alive(each) for each in descendants))
    with up(environment) as second:
        second.wait_up()

    assert len(descendants) >= len(PROCESSES)


def test_a_taken_port_is_an_error_before_anything_starts(environment: dict[str, str]) -> None:
    port = int(environment["HEADRACE_PORT"])
    with socket.create_server(("127.0.0.1", port)), up(environment) as refused:
        exit_code = refused.wait_end()

    assert exit_code == 1
    assert f"port {port} is not free" in refused.output
    assert "HEADRACE_PORT" in refused.output
    assert not (Path(environment["HEADRACE_DATA"]) / "postgres").exists()


@pytest.mark.parametrize("port", ["eighty", "0", "70000"])
def test_a_port_that_is_none_is_an_error(environment: dict[str, str], port: str) -> None:
    with up(environment | {"HEADRACE_PORT": port}) as refused:
        exit_code = refused.wait_end()

    assert exit_code == 1
    assert f"HEADRACE_PORT must be a port number, not '{port}'" in refused.output


def test_a_bundle_that_is_none_is_an_error_before_anything_starts(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with up(environment | {"HEADRACE_MODEL_BUNDLE": str(tmp_path / "nope")}) as refused:
        exit_code = refused.wait_end()

    assert exit_code == 1
    assert "error: HEADRACE_MODEL_BUNDLE names no usable bundle" in refused.output
    assert "Traceback" not in refused.output
    assert not (Path(environment["HEADRACE_DATA"]) / "postgres").exists()


@pytest.mark.long
def test_it_comes_up_whatever_is_logged_and_with_options_for_its_engine(
    environment: dict[str, str],
) -> None:
    given = {
        "HEADRACE_LOG_LEVEL": "ERROR",
        "HEADRACE_ENGINE_OPTIONS": "--threads 1 --pool-tokens 8192",
    }
    with up(environment | given) as running:
        running.wait_up()

    assert "blocks=512" in running.output
    assert "superuser privileges" not in running.output


@pytest.mark.long
def test_options_that_the_engine_refuses_are_shown(environment: dict[str, str]) -> None:
    with up(environment | {"HEADRACE_ENGINE_OPTIONS": "--turbo"}) as refused:
        exit_code = refused.wait_end()

    assert exit_code == 1
    assert "unrecognized arguments: --turbo" in refused.output
    assert "HEADRACE_ENGINE_OPTIONS is '--turbo'" in refused.output


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are a plain user's already")
def test_it_serves_a_plain_user(environment: dict[str, str], bundle_folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    prefix = (
        *("setpriv", "--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid)),
        *("--clear-groups", "--"),
    )
    python = _python_within_reach(prefix, bundle_folder)
    if python is None:
        pytest.skip(f"other users can run no python with our packages, or read {bundle_folder}")
    home = Path(tempfile.mkdtemp(prefix="headrace-plain-"))
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    given = {
        "HOME": str(home),
        "HEADRACE_DATA": str(home / "data"),
        "PYTHONPATH": PACKAGES,
    }
    try:
        with up(environment | given, prefix, python) as running:
            running.wait_up()
            users = {each.username() for each in running.descendants()}
            answer = _ask(json.loads((home / "data" / "demo.json").read_text()))
    finally:
        shutil.rmtree(home)

    assert answer
    assert users == {"nobody"}


def _python_within_reach(prefix: Sequence[str], bundle_folder: Path) -> str | None:
    """This interpreter, or the system's of the same version, if `prefix` may run our code on it."""
    of_system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    test = 'test -r "$2/bundle.json" && PYTHONPATH="$3" "$1" -c "import headrace.standalone.demo"'
    for python in (sys.executable, of_system):
        command = [*prefix, "sh", "-c", test, "sh", python, str(bundle_folder), PACKAGES]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            return python
    return None


def _events_reconciled(environment: Mapping[str, str]) -> int:
    """How many usage events there are in a house that runs, whose books must agree."""
    done = subprocess.run(
        [sys.executable, "manage.py", "reconcile"],
        cwd=REPOSITORY,
        env=dict(environment),
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(r"(\d+) rows of billing_usage_event", done.stdout)
    assert found is not None
    return int(found[1])


def _is_alive(process: psutil.Process) -> bool:
    """A zombie is dead, only nobody reaped it yet."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _ask(demo: dict[str, Any]) -> str | None:
    """One answer through the stock client, with what demo.json says and nothing else."""
    with openai.OpenAI(base_url=demo["base_url"], api_key=demo["keys"]["acme"]) as client:
        answer = client.chat.completions.create(
            model=demo["model"],
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=4,
        )
    return answer.choices[0].message.content
