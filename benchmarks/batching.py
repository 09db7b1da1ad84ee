"""Continuous against static batching, and paged against contiguous KV, on one mixed workload.

`python -m benchmarks.batching` gives the same requests, all waiting from the start, to the same
engine in three ways. "Static" fills a batch, finishes all of it and fills the next. "Contiguous"
may run only as many at once as the same KV memory holds slots of the longest request allowed;
"paged" as many as fit. Lengths are lognormal, as in public traces of conversations. With the real
model in processor time; at the scale of GPUs over a modelled runner, whose steps set the time.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.in_process import WatchedEngine, greedy, load, random_prompt, watched_engine
from benchmarks.model import loaded_bundle
from benchmarks.modelled_runner import A100_13B, H200_8B, ModelledRunner, NoTexts
from benchmarks.report import print_table
from inference.contracts import BLOCK_TOKENS
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner


@dataclass(frozen=True, slots=True)
class Workload:
    """So many requests of lognormal lengths; prompt and answer together have at most `length_max`
    tokens, for which a contiguous slot reserves room. `pool_tokens` of KV in all."""

    title: str
    requests: int
    prompt_median: int
    output_median: int
    sigma: float
    length_max: int
    pool_tokens: int
    step_tokens_max: int
    running_max: int

    @property
    def slots(self) -> int:
        """Requests that contiguous KV holds."""
        return self.pool_tokens // self.length_max

    def lengths(self) -> list[tuple[int, int]]:
        """(prompt, answer) tokens of each request."""
        drawn = random.Random(5)
        return [
            (
                self._length(drawn, self.prompt_median),
                self._length(drawn, self.output_median),
            )
            for _ in range(self.requests)
        ]

    def _length(self, drawn: random.Random, median: int) -> int:
        length = round(drawn.lognormvariate(math.log(median), self.sigma))
        return min(max(length, 4), self.length_max // 2)


SMALL = Workload(
    title="SmolLM2 in int8, one thread",
    requests=64,
    prompt_median=48,
    output_median=40,
    sigma=0.9,
    length_max=512,
    pool_tokens=4096,
    step_tokens_max=256,
    running_max=64,
)
LONG_ANSWERS = Workload(
    title="13B in float16 on a card of 40 GB, modelled: memory is scarce, answers are long",
    requests=400,
    prompt_median=100,
    output_median=200,
    sigma=1.0,
    length_max=2048,
    pool_tokens=15_360,
    step_tokens_max=1024,
    running_max=256,
)
LONG_PROMPTS = Workload(
    title="8B in bfloat16 on a card of 141 GB, modelled: memory is plenty, prompts are long",
    requests=600,
    prompt_median=1000,
    output_median=130,
    sigma=0.9,
    length_max=8192,
    pool_tokens=640_000,
    step_tokens_max=2048,
    running_max=512,
)
WAYS = (
    ("static, contiguous", False, False),
    ("continuous, contiguous", False, True),
    ("continuous, paged", True, True),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens generated per second, and the most and the mean of requests running at once."""

    tokens_per_s: float
    running_max: int
    running_mean: float
    preemptions: int


def engine_for(workload: Workload, runner: Runner, *, paged: bool) -> WatchedEngine:
    """A fresh engine that may run as many as the KV layout holds."""
    running_max = workload.running_max if paged else workload.slots
    limits = SchedulerLimits(
        step_tokens_max=workload.step_tokens_max,
        running_max=running_max,
        waiting_max=2 * workload.requests,
    )
    if isinstance(runner, ModelledRunner):
        engine = Engine(runner, NoTexts(), stop_ids=(), limits=limits, clock=runner.clock)
        return WatchedEngine(engine, runner.clock)
    return watched_engine(loaded_bundle(), runner, limits=limits)


def outcome(workload: Workload, runner: Runner, *, paged: bool, continuous: bool) -> Outcome:
    """Runs the whole workload."""
    watched = engine_for(workload, runner, paged=paged)
    drawn = random.Random(6)
    lengths = workload.lengths()
    batch = len(lengths) if continuous else workload.slots
    running: list[int] = []
    began_s = watched.clock()
    for first in range(0, len(lengths), batch):
        for index, (prompt, answer) in enumerate(lengths[first : first + batch], start=first):
            prompt_ids = random_prompt(drawn, prompt, watched.engine.limits.vocab_size)
            watched.submit(str(index), prompt_ids, greedy(answer))
        while watched.engine.has_work:
            watched.step()
            running.append(watched.engine.stats().running)
    return Outcome(
        sum(answer for _, answer in lengths) / (watched.clock() - began_s),
        max(running),
        statistics.mean(running),
        watched.engine.stats().preemptions,
    )


def report(workload: Workload, outcomes: Sequence[tuple[str, Outcome]]) -> None:
    """One row per way, beside the first."""
    print(
        f"\n### Batching: {workload.title}\n\n{workload.requests} requests, medians of "
        f"{workload.prompt_median} and {workload.output_median} tokens, {workload.pool_tokens} "
        f"tokens of KV, slots of {workload.length_max}\n"
    )
    base = outcomes[0][1].tokens_per_s
    print_table(
        ("way", "tokens/s", "times static", "running, most", "running, mean", "preemptions"),
        [
            (
                name,
                f"{result.tokens_per_s:.0f}",
                f"{result.tokens_per_s / base:.2f}",
                str(result.running_max),
                f"{result.running_mean:.1f}",
                str(result.preemptions),
            )
            for name, result in outcomes
        ],
    )


def main() -> None:
    """Prints the tables."""
    small_runner = load(loaded_bundle(), pool_tokens=SMALL.pool_tokens)
    for workload, step_time in ((SMALL, None), (LONG_ANSWERS, A100_13B), (LONG_PROMPTS, H200_8B)):
        outcomes = []
        for name, paged, continuous in WAYS:
            runner: Runner = small_runner
            if step_time is not None:
                runner = ModelledRunner(workload.pool_tokens // BLOCK_TOKENS, step_time)
            outcomes.append((name, outcome(workload, runner, paged=paged, continuous=continuous)))
        report(workload, outcomes)


if __name__ == "__main__":
    main()
