"""The embedded PostgreSQL and Valkey of one data folder: who runs them, and how others find them.

Whoever starts them owns the folder's lock for as long as they run, so a lock that is free proves
that nobody does, whatever the state file says. Called by manage.py for each command, by the
supervisor and by the tests. An environment that names its own servers gets those instead.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import DataFolder, SetUpError, write_private
from headrace.standalone.embedded_postgres import EmbeddedPostgres
from headrace.standalone.embedded_valkey import EmbeddedValkey

OWNER_READY_TIMEOUT_S = 120
POLL_S = 0.1
DATABASE_VARIABLES = ("DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_HOUSEKEEPER_URL")


class DataFolderBusyError(SetUpError):
    """Another live process owns the servers of this data folder."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the servers of this house are; embedded or the operator's own."""

    database_url: str
    database_owner_url: str
    database_housekeeper_url: str
    redis_url: str

    def environment(self) -> dict[str, str]:
        """Every address under the name that settings.py reads."""
        return {
            "DATABASE_URL": self.database_url,
            "DATABASE_OWNER_URL": self.database_owner_url,
            "DATABASE_HOUSEKEEPER_URL": self.database_housekeeper_url,
            "REDIS_URL": self.redis_url,
        }


class EmbeddedServers:
    """Owns the servers of a data folder from `start` to `stop`.

    `start` raises DataFolderBusyError when another process does. Servers that `environment` names
    itself are left to it.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        environment: Mapping[str, str],
        echo: Callable[[str, str], None] | None = None,
        durable: bool = True,
    ) -> None:
        self._folder = folder
        self._own = _addresses_given(environment)
        self._lock: IO[str] | None = None
        self.postgres: EmbeddedPostgres | None = None
        self.valkey: EmbeddedValkey | None = None
        folder.create()
        if "DATABASE_URL" not in self._own:
            self.postgres = EmbeddedPostgres(folder, echo=echo, durable=durable)
        if "REDIS_URL" not in self._own:
            self.valkey = EmbeddedValkey(folder, echo=echo)

    def start(self, purpose: str) -> Addresses:
        """Takes the lock, starts what is missing and tells others where it is.

        `purpose` is what this process is, for the message that a second one shows.
        """
        self._lock = _take_lock(self._folder)
        _state_file(self._folder).unlink(missing_ok=True)
        owner = {"pid": os.getpid(), "purpose": purpose}
        self._lock.truncate(0)
        self._lock.write(json.dumps(owner))
        self._lock.flush()
        try:
            if self.postgres is not None:
                self.postgres.start()
            if self.valkey is not None:
                self.valkey.start()
        except BaseException:
            self.stop()
            raise
        addresses = self.addresses()
        write_private(_state_file(self._folder), json.dumps(addresses.environment()) + "\n")
        return addresses

    def stop(self) -> None:
        """Stops what `start` started, in reverse, and gives the lock back. Idempotent."""
        if self._lock is None:
            return  # what is there belongs to another owner
        _state_file(self._folder).unlink(missing_ok=True)
        for server in (self.valkey, self.postgres):
            if server is not None:
                server.stop()
        self._lock.close()
        self._lock = None

    def children(self) -> list[Child]:
        """The server processes that were started."""
        started = [each.child for each in (self.postgres, self.valkey) if each is not None]
        return [child for child in started if child is not None]

    def addresses(self) -> Addresses:
        """Where the servers are, or will be once started."""
        given = dict(self._own)
        if self.postgres is not None:
            secrets = self._folder.secrets()
            passwords = {
                "DATABASE_URL": ("headrace_app", secrets.postgres_app),
                "DATABASE_OWNER_URL": ("headrace_owner", secrets.postgres_owner),
                "DATABASE_HOUSEKEEPER_URL": ("headrace_housekeeper", secrets.postgres_housekeeper),
            }
            for variable, (role, password) in passwords.items():
                given[variable] = self.postgres.url(role, password)
        if self.valkey is not None:
            given["REDIS_URL"] = self.valkey.url()
        return Addresses(*(given[name] for name in (*DATABASE_VARIABLES, "REDIS_URL")))


@contextmanager
def servers_for_command(folder: DataFolder, purpose: str) -> Iterator[Addresses]:
    """The servers for one command: those that run, or fresh ones for as long as it takes.

    Whoever started them outlasts everybody else who uses them this way.
    """
    with ExitStack() as stack:
        servers = EmbeddedServers(folder, environment=os.environ)
        deadline = time.monotonic() + OWNER_READY_TIMEOUT_S
        while True:
            try:
                addresses = servers.start(purpose)
            except DataFolderBusyError:
                stack.enter_context(_user_lock(folder, fcntl.LOCK_SH))
                running = running_addresses(folder)
                if running is not None:
                    yield running
                    return
                stack.pop_all().close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
                continue
            try:
                yield addresses
            finally:
                with _user_lock(folder, fcntl.LOCK_EX):
                    servers.stop()
            return


def refuse_if_busy(folder: DataFolder) -> None:
    """Raises DataFolderBusyError when another process owns the servers of `folder`."""
    _take_lock(folder).close()


def running_addresses(folder: DataFolder) -> Addresses | None:
    """The addresses that a living owner published, or None while there is none."""
    try:
        with _open_lock(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            published = json.loads(_state_file(folder).read_text())
        except FileNotFoundError:
            return None
        return Addresses(*(published[name] for name in (*DATABASE_VARIABLES, "REDIS_URL")))
    return None


def _addresses_given(environment: Mapping[str, str]) -> dict[str, str]:
    given = {
        name: environment[name]
        for name in (*DATABASE_VARIABLES, "REDIS_URL")
        if environment.get(name)
    }
    missing = [name for name in DATABASE_VARIABLES if name not in given]
    if 0 < len(missing) < len(DATABASE_VARIABLES):
        raise SetUpError(
            f"{' and '.join(missing)} must be set too: a PostgreSQL of your own needs its three "
            "login roles (of the four that platform/headrace/standalone/roles.sql makes)"
        )
    return given


def _state_file(folder: DataFolder) -> Path:
    return folder.run / "servers.json"


def _open_lock(folder: DataFolder) -> IO[str]:
    return (folder.run / "servers.lock").open("a+")


def _take_lock(folder: DataFolder) -> IO[str]:
    lock = _open_lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = json.loads(lock.read() or '{"pid": "?", "purpose": "another command"}')
        lock.close()
        raise DataFolderBusyError(
            f"the data folder {folder.root} is in use by {owner['purpose']} (pid {owner['pid']}): "
            "stop it first, or choose another folder with HEADRACE_DATA"
        ) from error
    return lock


@contextmanager
def _user_lock(folder: DataFolder, kind: int) -> Iterator[None]:
    with (folder.run / "servers.users").open("a") as users:
        fcntl.flock(users, kind)
        yield
