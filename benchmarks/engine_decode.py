"""Speed of the engine in process: one thread, decode at context 64 to 88 and prefill by formats,
and decode behind a prompt that many share.

`python -m benchmarks.engine_decode` compares float32 with the plain torch loop and every cheaper
pair of formats with float32; streams that share a long prompt with as many that have one each.
Rounds alternate and medians of processor time are compared, so that
what else the machine does slows all alike.
"""

import random
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.in_process import (
    ORDINARY_IDS_FROM,
    THREADS,
    greedy,
    random_prompt,
    watched_engine,
)
from benchmarks.model import loaded_bundle
from benchmarks.plain_torch import PlainModel, decode_step_s
from benchmarks.report import Row, print_report
from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.runner import TorchRunner, load_runner
from inference.engine.step import SampleSpec, SequenceStep
from inference.tokenizer.bundle import Bundle

CONTEXT_TOKENS = 64
NEW_TOKENS = 24
PREFILL_TOKENS = 256
ROUNDS = 2
STREAMS = (1, 16)
POOL_TOKENS = 4096
FLOAT32 = ("float32", "float32")
FORMATS = (FLOAT32, ("bfloat16", "int8"), ("float16", "int8"), ("int8", "int8"), ("int4", "int8"))
"""Of weights and KV."""
SHARED_TOKENS = 608
OWN_TOKENS = 96
SHARERS = 16
STEPS = 4
"""Of each kind in a round; the fastest counts, since they are all alike."""

Speeds = dict[int | str, list[float]]
"""Tokens a second by streams, and of "prefill"."""


def decode_speeds(runner: TorchRunner, bundle: Bundle, drawn: random.Random) -> Speeds:
    """Of each step in which all streams decode one token, and of one step of prefill."""
    speeds: Speeds = {}
    for streams in STREAMS:
        watched = watched_engine(bundle, runner)
        for index in range(streams):
            prompt = random_prompt(drawn, CONTEXT_TOKENS, runner.vocab_size)
            watched.submit(f"request-{index}", prompt, greedy(NEW_TOKENS))
        speeds[streams] = []
        while watched.engine.has_work:
            before = [len(watch.token_ids) for watch in watched.watches.values()]
            elapsed_s = thread_s(watched.step)
            after = [len(watch.token_ids) for watch in watched.watches.values()]
            if min(before) > 0 and sum(after) - sum(before) == streams:
                speeds[streams].append(streams / elapsed_s)
    token_ids = range(ORDINARY_IDS_FROM, ORDINARY_IDS_FROM + PREFILL_TOKENS)
    step = SequenceStep("prefill", token_ids, 0, range(PREFILL_TOKENS // BLOCK_TOKENS))
    speeds["prefill"] = [PREFILL_TOKENS / thread_s(lambda: runner.execute([step]))]
    return speeds


def behind_a_prompt(runner: TorchRunner, shared_tokens: int) -> float:
    """Tokens a second of streams of equal context that have their first tokens in common."""
    context_blocks = (SHARED_TOKENS + OWN_TOKENS) // BLOCK_TOKENS
    shared = range(shared_tokens // BLOCK_TOKENS)
    own_blocks = context_blocks - len(shared)
    steps = [
        SequenceStep(
            f"stream-{index}",
            [ORDINARY_IDS_FROM + index],
            context_blocks * BLOCK_TOKENS - 1,
            (*shared, *range(first := len(shared) + index * own_blocks, first + own_blocks)),
            (SampleSpec(temperature=0.0),),
        )
        for index in range(SHARERS)
    ]
    return SHARERS / min(thread_s(lambda: runner.execute(steps)) for _ in range(STEPS))


def thread_s(compute: Callable[[], object]) -> float:
    """Processor seconds of this thread, which computes alone."""
    began_s = time.thread_time()
    compute()
    return time.thread_time() - began_s


def main() -> None:
    """Prints the table."""
    bundle, drawn = loaded_bundle(), random.Random(1)
    plain = PlainModel(bundle)
    runners = {
        formats: load_runner(
            bundle,
            pool_tokens=POOL_TOKENS,
            threads=THREADS,
            device="cpu",
            weight_format=formats[0],
            kv_format=formats[1],
        )
        for formats in FORMATS
    }
    torch.set_num_threads(THREADS)
    measured: dict[tuple[str, str], Speeds] = {formats: {} for formats in FORMATS}
    plain_speeds: Speeds = {streams: [] for streams in STREAMS}
    for _ in range(ROUNDS):
        for formats, runner in runners.items():
            for what, speeds in decode_speeds(runner, bundle, drawn).items():
                measured[formats].setdefault(what, []).extend(speeds)
        for streams in STREAMS:
            steps_s = decode_step_s(
                plain, streams, context_tokens=CONTEXT_TOKENS, new_tokens=NEW_TOKENS
            )
            plain_speeds[streams] += [streams / step_s for step_s in steps_s]
    table = [*rows(measured, plain_speeds), sharing_row(bundle)]
    print_report("Decode and prefill, in process", table, threads=1)


def sharing_row(bundle: Bundle) -> Row:
    """In the formats a CPU has by default."""
    runner = load_runner(
        bundle,
        pool_tokens=SHARERS * (SHARED_TOKENS + OWN_TOKENS),
        threads=THREADS,
        device="cpu",
    )
    together, apart = (
        statistics.median(behind_a_prompt(runner, tokens) for _ in range(ROUNDS))
        for tokens in (SHARED_TOKENS, 0)
    )
    return Row(
        f"{SHARERS} streams behind one prompt of {SHARED_TOKENS} tokens",
        together,
        "with one each",
        apart,
        "tokens/s",
        ">= 1.5",
    )


def rows(measured: dict[tuple[str, str], Speeds], plain_speeds: Speeds) -> list[Row]:
    """Float32 beside plain torch, the others beside float32."""
    median = statistics.median
    base = {what: median(speeds) for what, speeds in measured[FLOAT32].items()}
    table = [
        Row("float32, 16 streams", base[16], "1 stream", base[1], "tokens/s", ">= 3"),
        *(
            Row(
                f"float32, {streams} streams",
                base[int(streams)],
                "plain torch",
                median(speeds),
                "tokens/s",
                ">= 0.8",
            )
            for streams, speeds in plain_speeds.items()
        ),
    ]
    for (weights, kv), speeds_by in measured.items():
        for what, speeds in speeds_by.items():
            name = what if what == "prefill" else f"{what} streams"
            wanted = "" if weights == "float32" or what == "prefill" else ">= 1.4"
            table.append(
                Row(
                    f"{weights}, KV {kv}, {name}",
                    median(speeds),
                    "float32",
                    base[what],
                    "tokens/s",
                    wanted,
                )
            )
    return table


if __name__ == "__main__":
    main()
