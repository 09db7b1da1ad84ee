"""What interactive users feel of a running batch, and how fast a batch takes what they leave.

`python -m benchmarks.bulk_beside_interactive`: a whole house on the real engine. Some clients ask,
read a streamed answer, pause and ask again, without a batch and then beside one of many lines; then
they stop. What the engine computes for the batch, prompts and answers, is read from its metrics in
windows: at first it is mostly prompts of the requests that take the free seats. Wall time.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.bulk_house import BulkHouse, bulk_house, create_batch, upload
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, percentile, print_report
from headrace.standalone.loopback_server import free_port

CLIENTS = 2
REQUESTS_EACH = 20
PROMPT_WORDS = 120
NEW_TOKENS = 32
PAUSE_S_MAX = 1.0
BATCH_LINES = 2_000
BATCH_TOKENS = 64
BATCH_WARM_UP_S = 15.0
WINDOW_S = 0.5
TAKEN_WITHIN_S = 2.0
ALONE_S = 20.0
"""How long the batch is watched after everybody has gone."""
SETTLED_FROM_S = 6.0
"""From here on that is all the capacity that it gets."""
SLOWEST = 6
VOCABULARY = "mill river wheel stone water grain bread pond field wall bees rain oak dawn road"
METRICS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")


def prompt(drawn: random.Random) -> str:
    """Words that nobody said in this order before."""
    return "Go on: " + " ".join(drawn.choices(VOCABULARY.split(), k=PROMPT_WORDS))


async def first_tokens_s(house: BulkHouse, secret: str, seed: int) -> list[float]:
    """Seconds to the first token of every request of all clients."""
    firsts_s: list[float] = []
    headers = {"Authorization": f"Bearer {secret}"}

    async def one(number: int) -> None:
        drawn = random.Random(seed * CLIENTS + number)
        async with httpx.AsyncClient(headers=headers, timeout=300, trust_env=False) as client:
            for _ in range(REQUESTS_EACH):
                await asyncio.sleep(drawn.uniform(0, PAUSE_S_MAX))
                body = {
                    "model": house.model,
                    "messages": [{"role": "user", "content": prompt(drawn)}],
                    "max_tokens": NEW_TOKENS,
                    "temperature": 0,
                    "stream": True,
                }
                firsts_s.append(await _first_token_s(client, house, body))

    await asyncio.gather(*(one(number) for number in range(CLIENTS)))
    return firsts_s


async def _first_token_s(client: httpx.AsyncClient, house: BulkHouse, body: object) -> float:
    began_s, first_s = time.perf_counter(), 0.0
    url = f"{house.house.base_url}/chat/completions"
    async with client.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not first_s and line.startswith("data: {") and '"content":""' not in line:
                first_s = time.perf_counter() - began_s
    assert first_s, "no token came"
    return first_s


@dataclass(slots=True)
class Windows:
    """Tokens that the engine computed, window by window."""

    metrics_url: str
    rates: list[tuple[float, float]] = field(default_factory=list)
    """When a window ended, in seconds since the start, and its tokens/s."""

    def watch(self, seconds: float) -> None:
        """For so long from now, which is the start."""
        began_s = last_s = time.perf_counter()
        last = self.tokens()
        while last_s - began_s < seconds:
            time.sleep(WINDOW_S)
            now, now_s = self.tokens(), time.perf_counter()
            self.rates.append((now_s - began_s, (now - last) / (now_s - last_s)))
            last, last_s = now, now_s

    def mean(self, from_s: float, to_s: float) -> float:
        """Tokens/s of the windows that end in between."""
        rates = [rate for at_s, rate in self.rates if from_s < at_s <= to_s]
        return sum(rates) / len(rates)

    def tokens(self) -> float:
        """So far."""
        text = httpx.get(self.metrics_url, trust_env=False).raise_for_status().text
        values = [line.split()[-1] for line in text.splitlines() if line.startswith(METRICS)]
        return sum(map(float, values))


def write_batch(path: Path, lines: int, model: str) -> None:
    """Prompts of the clients' kind."""
    drawn = random.Random(3)
    with path.open("w") as out:
        for number in range(lines):
            body = {
                "model": model,
                "messages": [{"role": "user", "content": prompt(drawn)}],
                "max_tokens": BATCH_TOKENS,
                "temperature": 0,
            }
            line = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions"}
            out.write(json.dumps({**line, "body": body}) + "\n")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk_beside_interactive")
    parser.add_argument("--in-flight-max", type=int, help="of the worker; its default if left out")
    in_flight_max = parser.parse_args().in_flight_max
    bundle = loaded_bundle()
    port = free_port()
    extra = {"HEADRACE_METRICS_PORT": str(port)}
    if in_flight_max is not None:
        extra["HEADRACE_BATCH_IN_FLIGHT_MAX"] = str(in_flight_max)
    with (
        bulk_house(bundle, workers=1, stub=False, extra=extra) as house,
        house.client() as client,
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
    ):
        secret = house.secret
        asyncio.run(first_tokens_s(house, secret, -1))
        without = asyncio.run(first_tokens_s(house, secret, 0))
        path = Path(name) / "lines.jsonl"
        write_batch(path, BATCH_LINES, house.model)
        batch = create_batch(client, upload(client, path))
        time.sleep(BATCH_WARM_UP_S)
        beside = asyncio.run(first_tokens_s(house, secret, 1))
        windows = Windows(f"http://127.0.0.1:{port}/metrics")
        windows.watch(ALONE_S)
        batch = client.get(f"/batches/{batch['id']}").raise_for_status().json()
        assert batch["status"] == "in_progress", batch
    all_of_it = windows.mean(SETTLED_FROM_S, ALONE_S)
    early = windows.mean(TAKEN_WITHIN_S, TAKEN_WITHIN_S + 2.0)
    rows = [
        Row(
            "first token's p95 beside a batch",
            percentile(beside, 95),
            "without",
            percentile(without, 95),
            "s",
            "<= 1.5",
        ),
        Row(
            "first token's median beside a batch",
            percentile(beside, 50),
            "without",
            percentile(without, 50),
            "s",
            "",
        ),
        Row(
            f"batch, {TAKEN_WITHIN_S:.0f} s after they left",
            early,
            "all the capacity",
            all_of_it,
            "tokens/s",
            ">= 0.9",
        ),
    ]
    print_report(f"A batch beside {CLIENTS} interactive clients", rows, threads=1)
    for name, firsts_s in (("without", without), ("beside", beside)):
        slowest = sorted(firsts_s, reverse=True)[:SLOWEST]
        print(f"slowest first tokens {name}: " + ", ".join(f"{one:.3f}" for one in slowest))
    print("tokens/s in windows after they left: " + _each(windows.rates))


def _each(rates: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{at_s:.1f} s {rate:.0f}" for at_s, rate in rates)


if __name__ == "__main__":
    main()
