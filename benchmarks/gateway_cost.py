"""What a gateway costs itself: processor time per request and per streamed chunk, beside LiteLLM.

`python -m benchmarks.gateway_cost --venvs PATH` runs both in front of one stub engine that answers
at a fixed pace (`benchmarks.stub_engine`), each as one process. Ours authenticates, holds, meters
and settles every request in PostgreSQL; LiteLLM's proxy has a master key and no database. Counted
is the processor time of the gateway's process, PostgreSQL's apart.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.model import loaded_bundle
from benchmarks.peers.venvs import Peer, PeerMissing, venv_python
from benchmarks.report import Row, print_report
from headrace.standalone.data_folder import REPOSITORY, DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import House, set_up_environment
from headrace.standalone.running_house import RunningHouse
from inference.tokenizer.bundle import Bundle

LITELLM = Peer("litellm", ("litellm[proxy]==1.106.12",))
"""Never another version."""
LITELLM_KEY = "sk-benchmark-0123456789"
REQUESTS = 400
STREAMS = 48
STREAM_TOKENS = 200
ANSWER_TOKENS = 4
AT_ONCE = 16
ROUNDS = 3
TENANT = (
    *("--credit", "1000", "--requests-per-minute", "1000000"),
    *("--tokens-per-minute", "1000000000", "--daily-tokens", "1000000000"),
)
"""Limits that are counted and never reached."""
START_S = 120
REQUEST_MS_MAX = 3.0
CHUNK_US_MAX = 150.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """One side of the comparison: where it listens, and the processor time it has used."""

    name: str
    base_url: str
    key: str
    model: str
    cpu_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of a gateway."""

    request_ms: float
    chunk_us: float


async def load(gateway: Gateway, count: int, tokens: int, *, stream: bool) -> None:
    """`count` requests, AT_ONCE at a time, each read to its end."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    seats = asyncio.Semaphore(AT_ONCE)
    body = {
        "model": gateway.model,
        "messages": [{"role": "user", "content": "Tell me about the mill by the river."}],
        "max_tokens": tokens,
        "stream": stream,
    }
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(
        headers=headers, timeout=120, trust_env=False, limits=limits
    ) as client:

        async def one() -> None:
            url = f"{gateway.base_url}/chat/completions"
            async with seats, client.stream("POST", url, json=body) as answer:
                text = await answer.aread()
                assert answer.status_code == httpx.codes.OK, text[:300]

        await asyncio.gather(*(one() for _ in range(count)))


def measure(gateway: Gateway) -> Cost:
    """The cost of a request, then of each further chunk of a stream."""

    def spent_s(count: int, tokens: int, *, stream: bool) -> float:
        began_s = gateway.cpu_s()
        asyncio.run(load(gateway, count, tokens, stream=stream))
        return gateway.cpu_s() - began_s

    request_s = spent_s(REQUESTS, ANSWER_TOKENS, stream=False) / REQUESTS
    short_s = spent_s(STREAMS, 1, stream=True) / STREAMS
    long_s = spent_s(STREAMS, STREAM_TOKENS, stream=True) / STREAMS
    return Cost(request_s * 1e3, (long_s - short_s) / (STREAM_TOKENS - 1) * 1e6)


def process_cpu_s(pid: int) -> float:
    """Processor seconds of a process and of its children, living and waited for."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    total = 0.0
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


@contextlib.contextmanager
def stub_engine(bundle: Bundle, socket: Path) -> Iterator[str]:
    """The engine that computes nothing; yields its OpenAI base URL."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.stub_engine", "--bundle", str(bundle.folder)]
    child = subprocess.Popen([*command, "--socket", str(socket), "--port", str(port)])
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", child)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.wait()


@contextlib.contextmanager
def our_gateway(bundle: Bundle, running: RunningHouse) -> Iterator[Gateway]:
    """A web process of ours, with PostgreSQL and Valkey."""
    said = subprocess.run(
        [sys.executable, str(REPOSITORY / "manage.py"), "create_tenant", "bench", *TENANT],
        env=set_up_environment(running.house),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    running.start("web")
    web = running.child("web")
    yield Gateway(
        "Headrace",
        running.house.base_url,
        said.split()[-1],
        bundle.name,
        lambda: process_cpu_s(web.pid),
    )


@contextlib.contextmanager
def litellm_gateway(python: Path, engine_url: str, folder: Path) -> Iterator[Gateway]:
    """LiteLLM's proxy in its own environment, one worker, a master key, no database."""
    config = folder / "litellm.yaml"
    config.write_text(
        json.dumps(
            {
                "model_list": [
                    {
                        "model_name": "stub",
                        "litellm_params": {
                            "model": "openai/stub",
                            "api_base": engine_url,
                            "api_key": "none",
                        },
                    }
                ],
                "general_settings": {"master_key": LITELLM_KEY},
                "litellm_settings": {"telemetry": False},
            }
        )
    )
    port = free_port()
    command = [str(python.parent / "litellm"), "--config", str(config), "--port", str(port)]
    environment = {
        **os.environ,
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "127.0.0.1",
    }
    with (folder / "litellm.log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--num_workers", "1"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health/liveliness", child)
        base_url = f"http://127.0.0.1:{port}/v1"
        yield Gateway("LiteLLM", base_url, LITELLM_KEY, "stub", lambda: process_cpu_s(child.pid))
    finally:
        child.terminate()
        child.wait()


def _wait_for(url: str, child: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).status_code == httpx.codes.OK:
                return
        if child.poll() is not None or time.monotonic() > deadline:
            raise PeerMissing(f"nothing answers at {url}")
        time.sleep(0.2)


def compare(bundle: Bundle, venvs: Path) -> tuple[list[Row], str]:
    """The table's rows and a line on PostgreSQL. Without LiteLLM, ours beside the limits alone."""
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as s:
        folder = DataFolder(Path(name))
        servers = EmbeddedServers(folder, environment={})
        extra = {"HEADRACE_LOG_LEVEL": "WARNING"}
        house = House(folder, servers.start("a benchmark"), bundle.folder, free_port(), extra)
        running = RunningHouse(house, servers)
        s.callback(running.stop)
        running.set_up()
        engine_url = s.enter_context(stub_engine(bundle, folder.engine_socket))
        gateways = [s.enter_context(our_gateway(bundle, running))]
        try:
            python = venv_python(venvs, LITELLM)
            gateways.append(s.enter_context(litellm_gateway(python, engine_url, Path(name))))
        except PeerMissing as missing:
            print(f"LiteLLM is not measured: {missing}", file=sys.stderr)
        postgres = next(child for child in servers.children() if "postgres" in child.name)
        postgres_s, asked = 0.0, 0
        for round_ in range(ROUNDS + 1):
            for gateway in gateways:
                before_s = process_cpu_s(postgres.pid)
                cost = measure(gateway)
                if round_:  # the first warms up
                    costs.setdefault(gateway.name, []).append(cost)
                    if gateway.name == "Headrace":
                        postgres_s += process_cpu_s(postgres.pid) - before_s
                        asked += REQUESTS + 2 * STREAMS
    return _rows(
        costs
    ), f"PostgreSQL's processor time per request: {postgres_s / asked * 1e3:.2f} ms"


def _rows(costs: dict[str, list[Cost]]) -> list[Row]:
    def median(name: str, part: Callable[[Cost], float]) -> float:
        return statistics.median(part(cost) for cost in costs[name])

    request_ms = median("Headrace", lambda cost: cost.request_ms)
    chunk_us = median("Headrace", lambda cost: cost.chunk_us)
    rows = [
        Row("a request, not streamed", request_ms, "limit", REQUEST_MS_MAX, "ms", "<= 1"),
        Row("a streamed chunk", chunk_us, "limit", CHUNK_US_MAX, "us", "<= 1"),
    ]
    if "LiteLLM" in costs:
        other_ms = median("LiteLLM", lambda cost: cost.request_ms)
        other_us = median("LiteLLM", lambda cost: cost.chunk_us)
        rows += [
            Row("a request, not streamed", request_ms, "LiteLLM", other_ms, "ms", "<= 0.25"),
            Row("a streamed chunk", chunk_us, "LiteLLM", other_us, "us", "<= 0.25"),
        ]
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway_cost")
    parser.add_argument("--venvs", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    rows, postgres = compare(loaded_bundle(), options.venvs)
    print_report("What a gateway costs, in processor time of its process", rows, threads=0)
    print(postgres)


if __name__ == "__main__":
    main()
