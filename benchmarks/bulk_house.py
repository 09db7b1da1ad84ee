"""A house for measurements of bulk work, and a client of its Files and Batches endpoints.

The house has its own PostgreSQL with durable commits, Valkey, web, beat and as many workers as are
asked for, before an engine that computes nothing or the real one. Never part of a running house.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from headrace.standalone.data_folder import REPOSITORY, DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import House, set_up_environment
from headrace.standalone.running_house import RunningHouse
from inference.tokenizer.bundle import Bundle

TENANT = (
    *("--credit", "1000", "--requests-per-minute", "1000000"),
    *("--tokens-per-minute", "1000000000", "--daily-tokens", "1000000000"),
)
POLL_S = 0.25
SAMPLE_S = 1.0
STUB_STEP_S = 0.005
STUB_START_S = 30
CLIENT_TIMEOUT_S = 600
ENDS = frozenset({"completed", "failed", "expired", "cancelled"})
Json = dict[str, Any]  # of a foreign shape


@dataclass(slots=True)
class BulkHouse:
    """A running house and the key of a tenant with credit."""

    running: RunningHouse
    servers: EmbeddedServers
    secret: str
    model: str
    stub: "subprocess.Popen[bytes] | None" = None

    @property
    def house(self) -> House:
        """Where it is."""
        return self.running.house

    def pids(self) -> dict[str, int]:
        """Each process of ours by name; PostgreSQL and Valkey are not."""
        return {name: self.running.child(name).pid for name in self.running.names()}

    def client(self) -> httpx.Client:
        """Its base is /v1."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx.Client(
            base_url=self.house.base_url,
            headers=headers,
            timeout=CLIENT_TIMEOUT_S,
            trust_env=False,
        )

    def reconcile(self) -> str:
        """The last line that `manage.py reconcile` says. AssertionError when the books differ."""
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "manage.py"), "reconcile"],
            env=set_up_environment(self.house),
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.strip().splitlines()[-1]


@contextlib.contextmanager
def bulk_house(
    bundle: Bundle, *, workers: int, stub: bool, extra: Mapping[str, str] | None = None
) -> Iterator[BulkHouse]:
    """A fresh house in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as s:
        folder = DataFolder(Path(name))
        servers = EmbeddedServers(folder, environment={})
        given = {"HEADRACE_LOG_LEVEL": "WARNING"} | dict(extra or {})
        house = House(folder, servers.start("a benchmark"), bundle.folder, free_port(), given)
        running = RunningHouse(house, servers)
        s.callback(running.stop)
        running.set_up()
        secret = new_tenant(house, "bench")
        engine = None
        if stub:
            engine = s.enter_context(stub_engine(bundle, folder.engine_socket))
        else:
            running.start("engine")
        running.start("web")
        running.start("worker")
        for number in range(1, workers):
            another = f"worker{number + 1}"
            running.start_another("worker", another, "--hostname", f"{another}@%h")
        running.start("beat")
        yield BulkHouse(running, servers, secret, bundle.name, engine)


def new_tenant(house: House, slug: str) -> str:
    """The secret of a new tenant with credit and without limits that matter."""
    said = subprocess.run(
        [sys.executable, str(REPOSITORY / "manage.py"), "create_tenant", slug, *TENANT],
        env=set_up_environment(house),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return said.split()[-1]


@contextlib.contextmanager
def stub_engine(bundle: Bundle, socket: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The engine that computes nothing, once its socket is there."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.stub_engine", "--bundle", str(bundle.folder)),
            *("--socket", str(socket), "--port", str(free_port())),
            *("--step-s", str(STUB_STEP_S)),
        ]
    )
    try:
        deadline = time.monotonic() + STUB_START_S
        while not socket.exists():
            assert child.poll() is None, "the stub engine ended"
            assert time.monotonic() < deadline, "the stub engine has no socket"
            time.sleep(0.05)
        yield child
    finally:
        child.terminate()
        child.wait()


def upload(client: httpx.Client, path: Path) -> str:
    """The id of a file of batch lines."""
    with path.open("rb") as lines:
        answer = client.post(
            "/files",
            data={"purpose": "batch"},
            files={"file": (path.name, lines, "application/jsonl")},
        )
    assert answer.status_code == httpx.codes.OK, answer.text
    return str(answer.json()["id"])


def create_batch(
    client: httpx.Client, file_id: str, endpoint: str = "/v1/chat/completions"
) -> Json:
    """A batch over an uploaded file."""
    wanted = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h"}
    answer = client.post("/batches", json=wanted)
    assert answer.status_code == httpx.codes.OK, answer.text
    batch: Json = answer.json()
    return batch


@dataclass(frozen=True, slots=True)
class Watched:
    """A batch that has ended, and when this process saw it reach each state, from its creation."""

    batch: Json
    reached_s: Mapping[str, float]
    counts: Sequence[tuple[float, int]]
    """How many lines were done at which time."""


def watch(client: httpx.Client, batch_id: str, began_s: float, timeout_s: float) -> Watched:
    """Polls a batch to its end; `began_s` by the monotonic clock."""
    reached: dict[str, float] = {}
    counts: list[tuple[float, int]] = []
    while True:
        batch = client.get(f"/batches/{batch_id}").raise_for_status().json()
        now_s = time.monotonic() - began_s
        reached.setdefault(batch["status"], now_s)
        counts.append((now_s, int(batch["request_counts"]["completed"])))
        if batch["status"] in ENDS:
            return Watched(batch, reached, counts)
        assert now_s < timeout_s, f"not done in {timeout_s} s: {batch}"
        time.sleep(POLL_S)


def custom_ids(client: httpx.Client, file_id: str | None) -> list[str]:
    """Those in an output or error file, as often as they are in it."""
    if file_id is None:
        return []
    with client.stream("GET", f"/files/{file_id}/content") as answer:
        answer.raise_for_status()
        return [json.loads(line)["custom_id"] for line in answer.iter_lines() if line]


@dataclass(slots=True)
class MemoryWatch:
    """Resident memory of processes, sampled in a thread; megabytes."""

    pids: Mapping[str, int]
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads.append(threading.Thread(target=self._run, daemon=True))
        self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._threads.pop().join()

    def peak(self, name: str) -> float:
        """The most that one process had."""
        return max(value for _, value in self.samples[name])

    def growth_per_minute(self, name: str) -> float:
        """The slope of the line through the second half of its samples."""
        later = self.samples[name][len(self.samples[name]) // 2 :]
        mean_at = sum(at for at, _ in later) / len(later)
        mean = sum(value for _, value in later) / len(later)
        spread = sum((at - mean_at) ** 2 for at, _ in later) or 1.0
        return 60 * sum((at - mean_at) * (value - mean) for at, value in later) / spread

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stop.wait(SAMPLE_S):
            for name, pid in self.pids.items():
                with contextlib.suppress(psutil.NoSuchProcess):
                    megabytes = psutil.Process(pid).memory_info().rss / 2**20
                    at_s = time.monotonic() - began_s
                    self.samples.setdefault(name, []).append((at_s, megabytes))
