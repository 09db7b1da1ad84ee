"""The throughput/latency curve: 1, 4, 16 and 32 clients under three settings of the engine's knobs.

`python -m benchmarks.curve`. Each client asks, reads its answer, and asks again, so that prompts
are computed beside answers all the time. Processor time.
"""

import random
import statistics
from dataclasses import dataclass

from benchmarks.in_process import THREADS, greedy, load, random_prompt, watched_engine
from benchmarks.model import loaded_bundle
from benchmarks.report import machine, percentile, print_table
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle

CLIENTS = (1, 4, 16, 32)
PROMPT_TOKENS = 128
NEW_TOKENS = 64
ROUNDS_EACH = 2
"""Requests per client."""
SETTINGS = (
    ("defaults", SchedulerLimits()),
    ("latency: 50 ms a step", SchedulerLimits(inter_token_target_ms=50.0)),
    (
        "throughput: 512 tokens a step",
        SchedulerLimits(step_tokens_max=512, inter_token_target_ms=1000.0),
    ),
    ("8 running at most", SchedulerLimits(running_max=8)),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the curve; times in milliseconds."""

    tokens_per_s: float
    gap_p50_ms: float
    gap_p95_ms: float
    first_token_p50_ms: float
    first_token_p95_ms: float


def point(bundle: Bundle, runner: Runner, limits: SchedulerLimits, clients: int) -> Point:
    """Runs `clients` clients to the end of their requests."""
    watched = watched_engine(bundle, runner, limits=limits)
    drawn = random.Random(7)
    asked = 0
    began_s = watched.clock()
    ended: list[str] = [""] * clients
    while ended or watched.engine.has_work:
        for _ in ended:
            if asked < clients * ROUNDS_EACH:
                prompt = random_prompt(drawn, PROMPT_TOKENS, bundle.vocab_size)
                watched.submit(str(asked), prompt, greedy(NEW_TOKENS))
                asked += 1
        ended = watched.step()
    watches = watched.watches.values()
    gaps_ms = [gap * 1000 for watch in watches for gap in watch.gaps_s]
    firsts_ms = [watch.first_token_s * 1000 for watch in watches]
    return Point(
        len(watches) * NEW_TOKENS / (watched.clock() - began_s),
        statistics.median(gaps_ms),
        percentile(gaps_ms, 95),
        statistics.median(firsts_ms),
        percentile(firsts_ms, 95),
    )


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    runner = load(bundle)
    point(bundle, runner, SchedulerLimits(), 4)
    rows = []
    for name, limits in SETTINGS:
        for clients in CLIENTS:
            at = point(bundle, runner, limits, clients)
            rows.append(
                (
                    name,
                    str(clients),
                    f"{at.tokens_per_s:.0f}",
                    f"{at.gap_p50_ms:.0f} / {at.gap_p95_ms:.0f}",
                    f"{at.first_token_p50_ms:.0f} / {at.first_token_p95_ms:.0f}",
                )
            )
    print(
        f"\n### Throughput and latency, int8, prompts of {PROMPT_TOKENS}, answers of {NEW_TOKENS}\n"
    )
    heads = ("setting", "clients", "tokens/s", "between tokens, p50 / p95 ms")
    print_table((*heads, "first token, p50 / p95 ms"), rows)
    print(f"\nmachine: {machine()}, {THREADS} compute thread(s)", flush=True)


if __name__ == "__main__":
    main()
