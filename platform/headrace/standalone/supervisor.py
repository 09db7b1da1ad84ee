"""`make up`: a whole house in the foreground, from nothing to a streamed answer.

Starts everything in order, shows one prefixed log, and stops everything in reverse on Ctrl-C,
SIGTERM or the death of any child. Restarts nothing: a house that lost a process stops and says
why. Called by `python -m headrace.standalone up`.
"""

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.embedded_servers import EmbeddedServers, refuse_if_busy
from headrace.standalone.model_fetch import fetch_model
from headrace.standalone.processes import House, admin_url
from headrace.standalone.running_house import RunningHouse, describe_death
from inference.tokenizer.bundle import BundleInvalid, load_bundle

WATCH_S = 0.2
PROOF_TIMEOUT_S = 120
NAME_WIDTH = 8
COLOURS = {"headrace": 1, "postgres": 34, "valkey": 31, "engine": 35, "web": 32, "worker": 33}
QUESTION = "What is the capital of France?"


class StopRequested(BaseException):
    """Ctrl-C or SIGTERM arrived; not an Exception, so that nothing on the way swallows it."""


class Console:
    """One log for all: each line with the name of the process it came from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coloured = sys.stdout.isatty()

    def line(self, name: str, text: str) -> None:
        """Prints one line; does nothing when nobody reads any more."""
        prefix = f"{name:<{NAME_WIDTH}} |"
        if self._coloured:
            prefix = f"\x1b[{COLOURS.get(name, 36)}m{prefix}\x1b[0m"
        with self._lock, contextlib.suppress(BrokenPipeError):
            print(prefix, text, flush=True)

    def say(self, text: str) -> None:
        """Prints our own words, line by line."""
        for line in text.splitlines():
            self.line("headrace", line)


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into StopRequested and ignores the rest."""

    def request(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    before = {each: signal.signal(each, request) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def house_running(
    folder: DataFolder,
    port: int,
    purpose: str,
    *,
    say: Callable[[str], None],
    echo: Callable[[str, str], None] | None = None,
    with_history: bool = False,
) -> Iterator[RunningHouse]:
    """A whole house, seeded and ready; stopped in reverse order on the way out, however that is.

    `say` hears what is being done, `echo` each line of each process; a fresh house `with_history`
    has a month of usage to look at. Raises SetUpError before
    anything starts when the data folder or the port is taken, or a variable makes no sense.
    """
    folder.create()
    refuse_if_busy(folder)
    refuse_if_taken(port)
    bundle = bundle_named() or fetch_model(folder, report=say)
    servers = EmbeddedServers(folder, environment=os.environ, echo=echo)
    house = House(folder, servers.addresses(), bundle, port, {})
    running = RunningHouse(house, servers, echo=echo)
    try:
        say("starting PostgreSQL and Valkey")
        servers.start(purpose)
        say("migrating the database and seeding the demo tenants")
        if with_history and not folder.demo_file.exists():
            say("a first start writes a month of usage for acme, for half a minute")
        running.set_up(with_history=with_history)
        say("starting engine, web, worker and beat")
        running.start_all()
        yield running
    finally:
        say("stopping")
        running.stop()
        say("stopped")


def up() -> int:
    """Runs the house until it is told to stop (0) or loses a process (1)."""
    console = Console()
    folder = DataFolder.from_environment()
    try:
        with (
            stop_signals(),
            house_running(
                folder,
                port_wanted(),
                "`make up`",
                say=console.say,
                echo=console.line,
                with_history=os.environ.get("HEADRACE_DEMO_HISTORY") != "0",
            ) as running,
        ):
            console.say(f"asking itself: {QUESTION}")
            console.say(f"answer: {prove(running.house)}")
            console.say(welcome(running.house))
            while (dead := running.dead()) is None:
                time.sleep(WATCH_S)
            console.say(f"{dead.name} died: {describe_death(dead)}")
    except StopRequested:
        return 0
    except SetUpError as error:
        console.say(f"error: {error}")
        return 1
    # Said again at the end, where the others' last words have not buried it.
    console.say(f"error: {dead.name} died: {dead.cause_of_death()}")
    return 1


def port_wanted() -> int:
    """HEADRACE_PORT, or 8000."""
    text = os.environ.get("HEADRACE_PORT") or "8000"
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise SetUpError(f"HEADRACE_PORT must be a port number, not {text!r}")
    return int(text)


def refuse_if_taken(port: int) -> None:
    """Raises SetUpError when somebody listens on `port` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SetUpError(
                f"port {port} is not free ({error.strerror}): choose another with HEADRACE_PORT"
            ) from error


def bundle_named() -> Path | None:
    """The bundle that HEADRACE_MODEL_BUNDLE names, in place of the default model.

    Raises SetUpError when it is none.
    """
    named = os.environ.get("HEADRACE_MODEL_BUNDLE")
    if not named:
        return None
    try:
        return load_bundle(Path(named).resolve()).folder
    except BundleInvalid as error:
        raise SetUpError(f"HEADRACE_MODEL_BUNDLE names no usable bundle: {error}") from error


def prove(house: House) -> str:
    """One streamed answer, as any client would get it. Raises SetUpError when there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", house.web_port, timeout=PROOF_TIMEOUT_S)
    body = json.dumps(_question(house))
    headers = {
        "Authorization": f"Bearer {demo_keys(house.folder)['acme']}",
        "Content-Type": "application/json",
    }
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise SetUpError(f"the first answer failed: {response.status} {response.read()!r}")
        words = []
        for line in response:
            data = line.decode().removeprefix("data: ").strip()
            if line.startswith(b"data: ") and data != "[DONE]":
                event = json.loads(data)
                if "error" in event:
                    raise SetUpError(f"the first answer broke off: {event['error']['message']}")
                words += [
                    choice["delta"].get("content") or "" for choice in event.get("choices", [])
                ]
        return "".join(words)
    except (OSError, http.client.HTTPException) as error:
        raise SetUpError(f"the first answer failed: {error}") from error
    finally:
        connection.close()


def demo_keys(folder: DataFolder) -> dict[str, str]:
    """The API keys of the demo tenants, by name."""
    keys: dict[str, str] = json.loads(folder.demo_file.read_text())["keys"]
    return keys


def demo_passwords(folder: DataFolder) -> dict[str, str]:
    """What the demo's people were given to sign in with, by address."""
    passwords: dict[str, str] = json.loads(folder.demo_file.read_text())["passwords"]
    return passwords


def welcome(house: House) -> str:
    """What to do next, ready to paste."""
    key = demo_keys(house.folder)["acme"]
    headers = f"-H 'Authorization: Bearer {key}' -H 'Content-Type: application/json'"
    body = shlex.quote(json.dumps(_question(house)))
    owner, operator = (f"{email}  {word}" for email, word in demo_passwords(house.folder).items())
    back_office = f"\n  back office   {admin_url(house)}" if admin_url(house) else ""
    return f"""Headrace is up.
  console       {house.public_url}/console/
    acme's owner  {owner}
    the operator  {operator}{back_office}
  API base URL  {house.base_url}
  API key       {key}
  model         {model_served(house)}
  more keys     {house.folder.demo_file}, with these passwords
Try it:
  curl -N {house.base_url}/chat/completions {headers} -d {body}
Ctrl-C stops everything."""


def model_served(house: House) -> str:
    """The public name of the model, as the seed put it on sale."""
    model: str = json.loads(house.folder.demo_file.read_text())["model"]
    return model


def _question(house: House) -> dict[str, object]:
    return {
        "model": model_served(house),
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 64,
        "temperature": 0,
        "stream": True,
    }
