"""Decode speed of the engine in process: one thread, context 64 to 128, end of sequence ignored.

`python -m benchmarks.engine_decode` compares 16 streams with 1, and both with the plain torch loop.
Rounds of ours and theirs alternate and the medians of their steps are compared, so that a busy
machine slows both alike.
"""

import random
import statistics
import time

import torch

from benchmarks.model import loaded_bundle
from benchmarks.plain_torch import PlainModel, decode_step_s
from benchmarks.report import Row, print_report
from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.computing.runner import load_runner
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes

THREADS = 1
CONTEXT_TOKENS = 64
NEW_TOKENS = 64
ROUNDS = 3
STREAMS = (1, 16)
POOL_TOKENS = 4096


def new_engine(bundle: Bundle, *, pool_tokens: int = POOL_TOKENS) -> Engine:
    """An engine with the server's default limits."""
    runner = load_runner(bundle, pool_tokens=pool_tokens, threads=THREADS, device="cpu")
    return Engine(
        runner,
        TokenBytes(bundle),
        stop_ids=bundle.stop_ids,
        limits=SchedulerLimits(),
        clock=time.monotonic,
    )


def engine_step_s(engine: Engine, streams: int, prompts: random.Random) -> list[float]:
    """Seconds of each step in which all `streams` requests decode one token."""
    for index in range(streams):
        request = GenerationRequest(
            request_id=f"request-{index}",
            prompt_ids=tuple(
                prompts.choices(range(17, engine.limits.vocab_size), k=CONTEXT_TOKENS)
            ),
            sampling=SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True),
        )
        refusal = engine.submit(request)
        assert refusal is None, refusal
    times: list[float] = []
    while engine.has_work:
        began = time.perf_counter()
        result = engine.step()
        elapsed = time.perf_counter() - began
        if len(result.chunks) == streams and not result.finishes:
            times.append(elapsed)
    return times


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    engine, plain = new_engine(bundle), PlainModel(bundle)
    torch.set_num_threads(THREADS)
    ours: dict[int, list[float]] = {streams: [] for streams in STREAMS}
    theirs: dict[int, list[float]] = {streams: [] for streams in STREAMS}
    prompts = random.Random(1)
    for _ in range(ROUNDS):
        for streams in STREAMS:
            ours[streams] += engine_step_s(engine, streams, prompts)
            theirs[streams] += decode_step_s(
                plain, streams, context_tokens=CONTEXT_TOKENS, new_tokens=NEW_TOKENS
            )
    speed = {streams: streams / statistics.median(ours[streams]) for streams in STREAMS}
    plain_speed = {streams: streams / statistics.median(theirs[streams]) for streams in STREAMS}
    rows = [Row("16 streams", speed[16], "1 stream", speed[1], "tokens/s", ">= 3")]
    rows += [
        Row(
            f"{streams} stream(s)",
            speed[streams],
            "plain torch",
            plain_speed[streams],
            "tokens/s",
            ">= 0.8",
        )
        for streams in STREAMS
    ]
    print_report("Decode, float32, context 64-128, in process", rows, threads=THREADS)


if __name__ == "__main__":
    main()
