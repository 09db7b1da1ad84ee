"""One engine in a process of its own, pinned to one core: jobs in, seconds per step out.

`worker.py MODULE MODEL SETTING CORE` is run by a peer's interpreter, so it knows only the standard
library. `MODULE.Engine(model, setting).steps(prompts, new_tokens)` yields after each step how many
prompts got a token in it. Started by `compare`; it never decides what is measured.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol


class Steps(Protocol):
    """What a module of an engine provides as `Engine`."""

    def steps(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[int]:
        """Computes greedy answers of exactly `new_tokens` to all prompts, step by step."""
        ...


def measured(engine: Steps, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, object]:
    """Wall and processor seconds until every prompt had a token, and of each step after that in
    which all of them got one."""
    first_s: tuple[float, float] | None = None
    wall_s: list[float] = []
    cpu_s: list[float] = []
    tokens = 0
    began = last = (time.perf_counter(), time.process_time())
    for count in engine.steps(prompts, new_tokens):
        now = (time.perf_counter(), time.process_time())
        tokens += count
        if first_s is not None and count == len(prompts):
            wall_s.append(now[0] - last[0])
            cpu_s.append(now[1] - last[1])
        if first_s is None and count == len(prompts):
            first_s = (now[0] - began[0], now[1] - began[1])
        last = now
    assert tokens == len(prompts) * new_tokens, f"{tokens} tokens for {len(prompts)} prompts"
    return {"first_s": first_s, "wall_s": wall_s, "cpu_s": cpu_s}


def main() -> None:
    """Answers each job, a JSON line on standard input, with a JSON line on standard output."""
    module, model, setting, core = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    # Engines print what they like: their standard output becomes standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    engine = importlib.import_module(module).Engine(Path(model), setting)
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(measured(engine, job["prompts"], job["new_tokens"])), file=answers)


if __name__ == "__main__":
    main()
