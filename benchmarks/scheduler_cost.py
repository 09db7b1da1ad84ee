"""What scheduling costs: 256 requests decoding, before and after many have finished, and memory.

`python -m benchmarks.scheduler_cost` times plan and commit of the scheduler with its block pool,
and the whole engine around a runner that computes nothing. Processor time, medians.
"""

import gc
import random
import statistics
import time

import psutil

from benchmarks.in_process import WatchedEngine, greedy, random_prompt
from benchmarks.modelled_runner import ModelledRunner, NoTexts
from benchmarks.report import Row, print_report
from inference.contracts import BLOCK_TOKENS, GenerationRequest, SamplingParams
from inference.engine.answering.answer import Answer
from inference.engine.engine import Engine
from inference.engine.scheduling.block_pool import BlockPool
from inference.engine.scheduling.scheduler import Scheduler, SchedulerLimits
from inference.engine.sequence import new_sequence

RUNNING = 256
VOCAB_SIZE = 50_000
PROMPT_TOKENS = 128
STEPS = 400
SHORT_REQUESTS = 20_000
STEP_MS_MAX = 0.5
GROWTH_MB_MAX = 2.0
"""Memory that 15,000 short requests may add once 5,000 have filled every ring and cache."""
LIMITS = SchedulerLimits(step_tokens_max=2048, running_max=RUNNING, waiting_max=2 * RUNNING)


def scheduler_step_s(finished: int) -> float:
    """Plan and commit at 256 decoding sequences, after `finished` others have come and gone."""
    drawn = random.Random(3)
    scheduler = Scheduler(BlockPool(RUNNING * 64), LIMITS)
    for index in range(finished):
        _enqueue(scheduler, drawn, index)
        if scheduler.waiting == RUNNING or index == finished - 1:
            _run(scheduler, steps_max=1)
            for share in scheduler.plan():
                scheduler.remove(share.state)
    for index in range(RUNNING):
        _enqueue(scheduler, drawn, finished + index)
    times = _run(scheduler, steps_max=STEPS)
    return statistics.median(times[STEPS // 4 :])


def _enqueue(scheduler: Scheduler, drawn: random.Random, index: int) -> None:
    sampling = SamplingParams(max_tokens=10_000, ignore_eos=True)
    prompt = random_prompt(drawn, PROMPT_TOKENS, VOCAB_SIZE)
    request = GenerationRequest(str(index), (prompt,), sampling)
    scheduler.enqueue(
        new_sequence(
            request,
            0,
            arrival=index,
            cache_key=b"null",
            answer=Answer(NoTexts(), sampling),
            matcher=None,
        )
    )


def _run(scheduler: Scheduler, *, steps_max: int) -> list[float]:
    """Processor seconds of each step in which all running sequences decode."""
    times: list[float] = []
    while len(times) < steps_max:
        began = time.thread_time()
        shares = scheduler.plan()
        spent = time.thread_time() - began
        for share in shares:
            if share.reaches_end:
                share.state.token_ids.append(17)
        began = time.thread_time()
        for share in shares:
            scheduler.commit(share.state, share.state.computed + share.tokens)
        spent += time.thread_time() - began
        if all(share.reaches_end for share in shares) and not scheduler.waiting:
            times.append(spent)
    return times


def engine_step_s() -> float:
    """The whole engine's step around a runner that does nothing, 256 decoding."""
    watched = _engine()
    drawn = random.Random(3)
    for index in range(RUNNING):
        watched.submit(str(index), random_prompt(drawn, PROMPT_TOKENS, VOCAB_SIZE), greedy(STEPS))
    times: list[float] = []
    while watched.engine.has_work:
        began = time.thread_time()
        result = watched.engine.step()
        spent = time.thread_time() - began
        if len(result.chunks) == RUNNING and not result.finishes:
            times.append(spent)
    return statistics.median(times)


def memory_growth_mb() -> float:
    """What this process grew by while three quarters of the short requests ran, one quarter done
    before; requests are forgotten by the watch as well."""
    watched = _engine()
    drawn = random.Random(4)
    process = psutil.Process()
    after_quarter = 0
    for index in range(SHORT_REQUESTS):
        watched.submit(str(index), random_prompt(drawn, 24, VOCAB_SIZE), greedy(4))
        while watched.engine.stats().waiting + watched.engine.stats().running >= RUNNING // 2:
            for request_id in watched.step():
                del watched.watches[request_id]
        if index == SHORT_REQUESTS // 4:
            gc.collect()
            after_quarter = process.memory_info().rss
    watched.drain()
    gc.collect()
    return float(process.memory_info().rss - after_quarter) / 2**20


def _engine() -> WatchedEngine:
    blocks = RUNNING * (PROMPT_TOKENS + STEPS) // BLOCK_TOKENS
    runner = ModelledRunner(blocks)
    engine = Engine(runner, NoTexts(), stop_ids=(), limits=LIMITS, clock=runner.clock)
    return WatchedEngine(engine, runner.clock)


def main() -> None:
    """Prints the table."""
    fresh_ms = scheduler_step_s(0) * 1000
    later_ms = scheduler_step_s(SHORT_REQUESTS) * 1000
    growth_mb = memory_growth_mb()
    rows = [
        Row("scheduler and block pool, 256 running", fresh_ms, "limit", STEP_MS_MAX, "ms", "<= 1"),
        Row("after 20,000 have finished", later_ms, "before", fresh_ms, "ms", "<= 1.2"),
        Row(
            "whole engine, runner excluded", engine_step_s() * 1000, "scheduler", fresh_ms, "ms", ""
        ),
        Row("memory, 15,000 requests more", growth_mb, "limit", GROWTH_MB_MAX, "MB", "<= 1"),
    ]
    print_report("Cost of scheduling, processor time per step", rows, threads=1)


if __name__ == "__main__":
    main()
