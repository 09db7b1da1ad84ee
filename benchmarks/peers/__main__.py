"""Ours against vLLM, llama.cpp and transformers: one model file, one thread, one core, one run.

`python -m benchmarks.peers [--venvs PATH] [--rounds N] [--streams 1,16] [--peers llama,vllm]` makes
what environments are missing (below PATH, else `.bench/`), loads all engines, and lets them take
turns. Medians over all steps of all rounds are compared, by wall clock and by processor time: on a
shared machine the second is the steadier one. What cannot run is named with its reason.
"""

import argparse
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.in_process import random_prompt
from benchmarks.model import loaded_bundle
from benchmarks.peers.export import exported
from benchmarks.peers.processes import REPOSITORY, Contender, Timing, Worker
from benchmarks.peers.venvs import PEERS, Peer, PeerMissing, venv_python
from benchmarks.report import Row, print_report, print_table
from inference.tokenizer.bundle import Bundle

PROMPT_TOKENS = 64
NEW_TOKENS = 128
PREFILL_TOKENS = 512
PREFILL_TIMES = 4
PREFILL = 0
"""The key of the prefill job among those of decode, which go by their streams."""
OURS = "Headrace int8"
LLAMA = "llama.cpp Q4_1"
VLLM = "vLLM-CPU float32"
TRANSFORMERS = "transformers float32"
OUR_FORMATS = ("int8", "float32")
MODULES = {
    "llama": (LLAMA, "llama_cpp_steps", "split"),
    "vllm": (VLLM, "vllm_steps", "compiled"),
    "transformers": (TRANSFORMERS, "transformers_steps", "sdpa"),
}

Timings = dict[tuple[str, int], list[Timing]]


def contenders(bundle: Bundle, folder: Path, peers: Sequence[str]) -> list[Contender]:
    """Ours, and each wanted peer that can be installed; says which cannot."""
    ours = {"PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "platform")))}
    module, model = "benchmarks.peers.headrace_steps", bundle.folder.absolute()
    found = [
        Contender(f"Headrace {name}", Path(sys.executable), module, model, name, ours)
        for name in OUR_FORMATS
    ]
    theirs = {"VLLM_CACHE_ROOT": str(folder.absolute() / "vllm-cache")}
    for peer in PEERS:
        if peer.name not in peers:
            continue
        name, module, setting = MODULES[peer.name]
        try:
            python = venv_python(folder, peer)
        except PeerMissing as reason:
            print(f"{name}: not measured: {reason}")
            continue
        model = model_of(bundle, folder, peer)
        found.append(Contender(name, python, module, model, setting, theirs))
    return found


def model_of(bundle: Bundle, folder: Path, peer: Peer) -> Path:
    """The same weights in the form that the peer reads."""
    if peer.name == "llama":
        return (bundle.folder / bundle.weights_file).absolute()
    return exported(bundle, folder)


def measure(
    workers: dict[str, Worker], streams: Sequence[int], rounds: int, vocab_size: int
) -> Timings:
    """All jobs of all rounds, the engines taking turns; one that fails drops out."""
    drawn = random.Random(1)
    timings: Timings = {}
    for _ in range(rounds):
        for job in (PREFILL, *streams):
            for name, worker in list(workers.items()):
                try:
                    timings.setdefault((name, job), []).extend(
                        one_job(worker, job, drawn, vocab_size)
                    )
                except PeerMissing as reason:
                    print(f"{name}: dropped out: {reason}")
                    del workers[name]
    return {key: found for key, found in timings.items() if found}


def one_job(worker: Worker, job: int, drawn: random.Random, vocab_size: int) -> Iterator[Timing]:
    """A decode job once, or prefill a few times: the first of them finds everything cold."""
    if job == PREFILL:
        for _ in range(PREFILL_TIMES):
            yield worker.run([random_prompt(drawn, PREFILL_TOKENS, vocab_size)], 1)
        return
    prompts = [random_prompt(drawn, PROMPT_TOKENS, vocab_size) for _ in range(job)]
    yield worker.run(prompts, NEW_TOKENS)


def tokens_per_s(timings: Sequence[Timing], job: int, *, cpu: bool) -> float:
    """By the median step of a decode job, by the best prefill."""
    if job == PREFILL:
        return PREFILL_TOKENS / min(timing.first_s[cpu] for timing in timings)
    steps = [s for timing in timings for s in (timing.cpu_s if cpu else timing.wall_s)]
    return job / statistics.median(steps)


def wanted_rows(timings: Timings, *, cpu: bool) -> list[Row]:
    """Ours over theirs where a ratio is wanted, of what was measured."""
    wanted = (
        ("decode, 16 streams", 16, VLLM, ">= 1.5"),
        ("decode, 16 streams", 16, LLAMA, ">= 2"),
        ("decode, 1 stream", 1, LLAMA, ">= 0.7"),
        ("prefill of 512", PREFILL, LLAMA, ">= 2"),
    )
    unit = "tokens/cpu-s" if cpu else "tokens/s"
    return [
        Row(
            name,
            tokens_per_s(timings[OURS, job], job, cpu=cpu),
            peer,
            tokens_per_s(timings[peer, job], job, cpu=cpu),
            unit,
            ratio,
        )
        for name, job, peer, ratio in wanted
        if (OURS, job) in timings and (peer, job) in timings
    ]


def speed_table(timings: Timings, jobs: Sequence[int], *, cpu: bool) -> None:
    """Tokens per second of every engine at every job."""
    heads = ["engine", *(f"{job} stream(s)" if job else "prefill" for job in jobs)]
    cells = [
        [
            name,
            *(
                f"{tokens_per_s(timings[name, job], job, cpu=cpu):.3g}"
                if (name, job) in timings
                else "-"
                for job in jobs
            ),
        ]
        for name in dict.fromkeys(name for name, _ in timings)
    ]
    print_table(heads, cells)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--venvs", type=Path, default=Path(".bench"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--streams", default="1,4,16,32")
    parser.add_argument("--peers", default=",".join(peer.name for peer in PEERS))
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    options = parser.parse_args()
    streams = [int(count) for count in options.streams.split(",")]
    bundle = loaded_bundle()
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for contender in contenders(bundle, options.venvs, options.peers.split(",")):
            try:
                worker = Worker(contender, core=options.core, logs=options.venvs / "logs")
                workers[contender.name] = stack.enter_context(worker)
            except PeerMissing as reason:
                print(f"{contender.name}: not measured: {reason}")
        timings = measure(workers, streams, options.rounds, bundle.vocab_size)
    for cpu in (False, True):
        clock = "processor time" if cpu else "wall clock"
        print(f"\n### Tokens/s by {clock}, context {PROMPT_TOKENS}-{PROMPT_TOKENS + NEW_TOKENS}\n")
        speed_table(timings, [*streams, PREFILL], cpu=cpu)
    rows = wanted_rows(timings, cpu=False) + wanted_rows(timings, cpu=True)
    print_report("Ours against peers, one thread each, pinned to one core", rows, threads=1)


if __name__ == "__main__":
    main()
