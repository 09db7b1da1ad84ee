"""What the platform costs: 16 streams through HTTP with key, hold and settle, against the engine.

`python -m benchmarks.platform_over_engine` gives the same greedy prompts to the engine in process
and to a whole house (its own PostgreSQL with durable commits, Valkey, web, engine process). Both
compute the same tokens with one thread; the time runs from the first request to the last token, so
prefill is in it on both sides. Rounds alternate.
"""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil

from benchmarks.in_process import THREADS, load, watched_engine
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import House
from headrace.standalone.running_house import RunningHouse
from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.engine import Engine
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.prompt import ChatMessage, PromptEncoder

STREAMS = 16
NEW_TOKENS = 96
ROUNDS = 3
PROCESSES = ("engine", "web")


def question(stream: int, round_: int) -> str:
    """A prompt that nobody asked before, so that no round profits from the last one's cache."""
    return f"Round {round_}, story {stream}: write a very long story about a mill. Never stop."


def in_process_tokens_per_s(engine: Engine, encoder: PromptEncoder, round_: int) -> float:
    """All streams at once in this process."""
    began = time.perf_counter()
    for stream in range(STREAMS):
        prompt = encoder.encode_chat([ChatMessage("user", question(stream, round_))])
        sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0)
        refusal = engine.submit(GenerationRequest(f"{round_}-{stream}", (tuple(prompt),), sampling))
        assert refusal is None, refusal
    tokens = 0
    while engine.has_work:
        tokens += sum(finish.counts.completion for finish in engine.step().finishes)
    return tokens / (time.perf_counter() - began)


async def http_tokens_per_s(house: House, model: str, secret: str, round_: int) -> float:
    """All streams at once through the public door, read chunk by chunk."""
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(headers=headers, timeout=300, trust_env=False) as client:
        began = time.perf_counter()
        counts = await asyncio.gather(
            *(_stream(client, house, model, question(i, round_)) for i in range(STREAMS))
        )
        return sum(counts) / (time.perf_counter() - began)


async def _stream(client: httpx.AsyncClient, house: House, model: str, text: str) -> int:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": NEW_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    last = ""
    async with client.stream("POST", f"{house.base_url}/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                last = line
    usage = msgspec.json.decode(last.removeprefix("data: "))["usage"]
    return int(usage["completion_tokens"])


@contextmanager
def running_house(bundle: Bundle) -> Iterator[tuple[RunningHouse, str]]:
    """A fresh house in a folder that goes with it, and the key of a tenant with credit."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = DataFolder(Path(name))
        servers = EmbeddedServers(folder, environment={})
        house = House(folder, servers.start("a benchmark"), bundle.folder, free_port(), {})
        running = RunningHouse(house, servers)
        try:
            running.set_up()
            for process in PROCESSES:
                running.start(process)
            yield running, msgspec.json.decode(folder.demo_file.read_bytes())["keys"]["acme"]
        finally:
            running.stop()


def cpu_s(running: RunningHouse, name: str) -> float:
    """Processor seconds that a process of the house has used."""
    times = psutil.Process(running.child(name).pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    engine, encoder = watched_engine(bundle, load(bundle)).engine, PromptEncoder(bundle)
    ours: list[float] = []
    theirs: list[float] = []
    with running_house(bundle) as (running, secret):
        house = running.house
        asyncio.run(http_tokens_per_s(house, bundle.name, secret, -1))
        in_process_tokens_per_s(engine, encoder, -1)
        engine_began_s, web_began_s = cpu_s(running, "engine"), cpu_s(running, "web")
        for round_ in range(ROUNDS):
            theirs.append(in_process_tokens_per_s(engine, encoder, round_))
            ours.append(asyncio.run(http_tokens_per_s(house, bundle.name, secret, round_)))
        engine_s = cpu_s(running, "engine") - engine_began_s
        web_s = cpu_s(running, "web") - web_began_s
        web_megabytes = psutil.Process(running.child("web").pid).memory_info().rss / 2**20
    rows = [
        Row(
            f"{STREAMS} streams over HTTP",
            statistics.median(ours),
            "engine in process",
            statistics.median(theirs),
            "tokens/s",
            ">= 0.9",
        ),
        Row("web's processor time", web_s, "the engine's", engine_s, "s", ""),
        Row("web's resident memory", web_megabytes, "limit", 180.0, "MB", "<= 1"),
    ]
    print_report("Platform over engine", rows, threads=THREADS)
    own_megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"rounds: HTTP {_each(ours)}, in process {_each(theirs)} tokens/s; ", end="")
    print(f"this process peaked at {own_megabytes:.0f} MB")


def _each(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    main()
