"""A house while it runs: its processes started in order, watched, and stopped in reverse.

The supervisor and the system tests share it, so what the tests kill is what `make up` runs. It
owns the embedded servers too; it never restarts anything by itself.
"""

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from headrace.standalone.child_process import Child
from headrace.standalone.data_folder import REPOSITORY, SetUpError
from headrace.standalone.embedded_servers import EmbeddedServers
from headrace.standalone.processes import (
    START_TIMEOUT_S,
    House,
    HttpAnswers,
    LineLogged,
    ProcessSpec,
    SocketAccepts,
    process_specs,
    set_up_environment,
)
from inference.socket_address import socket_address

POLL_S = 0.05
SET_UP_TIMEOUT_S = 300


class RunningHouse:
    """The children of one house. Its methods are called from one thread."""

    def __init__(
        self,
        house: House,
        servers: EmbeddedServers,
        *,
        echo: Callable[[str, str], None] | None = None,
    ) -> None:
        self.house = house
        self.servers = servers
        self._echo = echo
        self._specs = {spec.name: spec for spec in process_specs(house)}
        self._children: dict[str, Child] = {}

    def set_up(self, *, with_history: bool = False) -> None:
        """Migrations, then the demo's tenants, keys and prices. Idempotent."""
        manage = str(REPOSITORY / "manage.py")
        self._run(sys.executable, manage, "migrate", "--database", "owner", "--no-input")
        history = ("--history",) if with_history else ()
        self._run(
            *(sys.executable, manage, "seed_demo", "--base-url", self.house.base_url), *history
        )

    def start_all(self) -> None:
        """Every process, each when the one before is ready. Raises SetUpError naming a failure."""
        for name in self._specs:
            self.start(name)

    def start(self, name: str) -> None:
        """Starts one process that is not running and waits until it is ready."""
        assert name not in self._children or self._children[name].exit_code is not None
        spec = self._specs[name]
        if isinstance(spec.ready, SocketAccepts):
            spec.ready.path.unlink(missing_ok=True)
        child = Child(
            name,
            spec.argv,
            environment=spec.environment,
            log_file=self.house.folder.logs / f"{name}.log",
            echo=self._echo,
        )
        self._children[name] = child
        self._wait_ready(spec, child)

    def start_another(self, like: str, name: str, *options: str) -> None:
        """Starts one more process like another, under a name of its own, with more options."""
        spec = self._specs[like]
        self._specs[name] = replace(spec, name=name, argv=(*spec.argv, *options))
        self.start(name)

    def names(self) -> tuple[str, ...]:
        """Of the processes that were started."""
        return tuple(self._children)

    def child(self, name: str) -> Child:
        """One of the processes; KeyError before it was first started."""
        return self._children[name]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends `number` to one process and waits for its end."""
        child = self._children[name]
        child.send(number)
        if not child.wait(self._specs[name].stop_grace_s):
            raise SetUpError(f"{name} did not end on {number.name}")

    def dead(self) -> Child | None:
        """A process that has ended though nobody stopped it; the servers count."""
        children = (*self.servers.children(), *self._children.values())
        return next((each for each in children if each.exit_code is not None), None)

    def stop_processes(self) -> None:
        """Stops every process in reverse order; the servers stay."""
        for name in reversed(self._specs):
            if name in self._children:
                self._children[name].stop(self._specs[name].stop_grace_s)

    def stop(self) -> None:
        """Stops every process in reverse order, then the servers."""
        self.stop_processes()
        self.servers.stop()

    def _wait_ready(self, spec: ProcessSpec, child: Child) -> None:
        seen = child.line_seen(spec.ready.text) if isinstance(spec.ready, LineLogged) else None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (seen.is_set() if seen is not None else _answers(spec)):
            for each in (*self.servers.children(), child):
                if each.exit_code is not None:
                    hint = f"\n{spec.hint}" if spec.hint and each is child else ""
                    raise SetUpError(
                        f"{spec.name} did not start: {each.name} ended, "
                        f"{describe_death(each)}{hint}"
                    )
            if time.monotonic() > deadline:
                tail = "\n".join(child.last_lines())
                raise SetUpError(f"{spec.name} was not ready in {START_TIMEOUT_S} s\n{tail}")
            time.sleep(POLL_S)

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env=set_up_environment(self.house),
            timeout=SET_UP_TIMEOUT_S,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode != 0:
            raise SetUpError(f"`manage.py {command[2]}` failed:\n{done.stdout.strip()}")


def describe_death(child: Child) -> str:
    """How a child ended and the last it said."""
    return f"{child.cause_of_death()}\n" + "\n".join(f"    {line}" for line in child.last_lines())


def _answers(spec: ProcessSpec) -> bool:
    if isinstance(spec.ready, SocketAccepts):
        return _socket_accepts(spec.ready)
    assert isinstance(spec.ready, HttpAnswers)
    url = urlsplit(spec.ready.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=5)
    try:
        connection.request("GET", url.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _socket_accepts(ready: SocketAccepts) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            with socket_address(ready.path) as address:
                probe.connect(address)
        except OSError:
            return False
    return True
