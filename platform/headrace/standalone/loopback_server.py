"""What the embedded servers share: a port, the wait for readiness, and the end of an orphan.

Called by `embedded_postgres` and `embedded_valkey`, under the data folder's lock only.
"""

import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import SetUpError

ORPHAN_TIMEOUT_S = 30
POLL_S = 0.05
PORT_MIN, PORT_MAX = 20_000, 32_000
PORT_ATTEMPTS_MAX = 100


def free_port() -> int:
    """A loopback port that nobody listens on, below the range that outgoing connections take."""
    for _ in range(PORT_ATTEMPTS_MAX):
        port = random.randrange(PORT_MIN, PORT_MAX)  # noqa: S311 - not a secret
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise SetUpError(f"no free port between {PORT_MIN} and {PORT_MAX} on 127.0.0.1")


def wait_until_ready(child: Child, ready: Callable[[], bool], timeout_s: float) -> None:
    """Returns when `ready` says so; raises SetUpError when `child` dies or takes too long."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if child.exit_code is not None:
            tail = "\n".join(child.last_lines())
            raise SetUpError(f"{child.name} did not start: {child.cause_of_death()}\n{tail}")
        if time.monotonic() > deadline:
            raise SetUpError(f"{child.name} was not ready within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def clear_orphan(data: Path, pid_file: Path, binary_name: str) -> None:
    """Ends a server that outlived a killed parent on this very data, so that a new one may start.

    Ours beyond doubt: the pid file in our folder names it, it runs the same program, and its
    working directory is that folder. Any other process of that number is left alone, and the
    pid file removed: it would keep the new server from starting.
    """
    try:
        pid = int(pid_file.read_text().split()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return
    deadline = time.monotonic() + ORPHAN_TIMEOUT_S
    if _is_orphan(pid, data, binary_name):
        os.kill(pid, signal.SIGINT)
    while _is_orphan(pid, data, binary_name):
        if time.monotonic() > deadline:
            raise SetUpError(f"a {binary_name} of an earlier run (pid {pid}) on {data} won't stop")
        time.sleep(POLL_S)
    # A dead process's file is left to the server, which also looks for its surviving children.
    if (Path("/proc") / str(pid)).exists():
        pid_file.unlink(missing_ok=True)


def _is_orphan(pid: int, data: Path, binary_name: str) -> bool:
    process = Path("/proc") / str(pid)
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        program = (process / "exe").readlink().name
        return state != "Z" and program == binary_name and (process / "cwd").samefile(data)
    except OSError:
        return False
