"""Engines in this process for benchmarks: the server's defaults, stepped by hand, watched.

Every benchmark that steps an engine makes it here, so that all measure the same thing. Time is the
processor time of the one compute thread, so that what else the machine does is not measured; waits
between arrivals are skipped instead of slept.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inference.contracts import GenerationRequest, Priority, SamplingParams
from inference.engine.computing.runner import load_runner
from inference.engine.drafting.speculation import Drafter
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes

THREADS = 1
WEIGHT_FORMAT = "int8"
"""What a house runs by default on a CPU."""
POOL_TOKENS = 16_384
ORDINARY_IDS_FROM = 17
"""Below are the special tokens of the model that benchmarks run."""


class WorkClock:
    """Processor seconds of this process since it was made, plus what was skipped."""

    def __init__(self) -> None:
        self._began_s = time.process_time()
        self._skipped_s = 0.0

    def __call__(self) -> float:
        """Seconds by this clock."""
        return time.process_time() - self._began_s + self._skipped_s

    def skip_to(self, at_s: float) -> None:
        """Lets time pass in which nothing is computed."""
        self._skipped_s += max(0.0, at_s - self())


@dataclass(slots=True)
class Watch:
    """When one request arrived, and when each of its tokens came."""

    arrived_at_s: float
    token_ids: list[int] = field(default_factory=list)
    token_at_s: list[float] = field(default_factory=list)

    @property
    def first_token_s(self) -> float:
        """From arrival to the first token."""
        return self.token_at_s[0] - self.arrived_at_s

    @property
    def gaps_s(self) -> list[float]:
        """Between tokens that follow each other."""
        return [
            later - earlier
            for earlier, later in zip(self.token_at_s, self.token_at_s[1:], strict=False)
        ]


class Clock(Protocol):
    """Seconds of a benchmark."""

    def __call__(self) -> float:
        """Now."""
        ...

    def skip_to(self, at_s: float) -> None:
        """Lets time pass in which nothing is computed."""
        ...


class WatchedEngine:
    """An engine and the times of everything that it was asked for. `clock` is the engine's own."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.watches: dict[str, Watch] = {}

    def submit(
        self,
        request_id: str,
        prompt: Sequence[int],
        sampling: SamplingParams,
        *,
        arrived_at_s: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
        fairness_key: bytes = b"",
    ) -> None:
        """Queues a request, which may have arrived a moment ago, while a step was computed."""
        at_s = self.clock() if arrived_at_s is None else arrived_at_s
        self.watches[request_id] = Watch(at_s)
        refusal = self.engine.submit(
            GenerationRequest(
                request_id,
                (tuple(prompt),),
                sampling,
                priority=priority,
                fairness_key=fairness_key,
            )
        )
        assert refusal is None, refusal

    def step(self) -> list[str]:
        """Computes one step; the requests that ended in it."""
        result = self.engine.step()
        now_s = self.clock()
        for chunk in result.chunks:
            watch = self.watches[chunk.request_id]
            watch.token_ids += chunk.token_ids
            watch.token_at_s += [now_s] * len(chunk.token_ids)
        return [finish.request_id for finish in result.finishes]

    def drain(self) -> None:
        """Computes until nothing is left."""
        while self.engine.has_work:
            self.step()


def load(
    bundle: Bundle,
    *,
    weight_format: str = WEIGHT_FORMAT,
    pool_tokens: int = POOL_TOKENS,
) -> Runner:
    """The model on one thread of the CPU."""
    return load_runner(
        bundle,
        pool_tokens=pool_tokens,
        threads=THREADS,
        device="cpu",
        weight_format=weight_format,
    )


def watched_engine(
    bundle: Bundle,
    runner: Runner,
    *,
    limits: SchedulerLimits | None = None,
    drafter: Drafter | None = None,
) -> WatchedEngine:
    """A fresh engine over the runner. One runner serves one engine after the other."""
    clock = WorkClock()
    engine = Engine(
        runner,
        TokenBytes(bundle),
        stop_ids=bundle.stop_ids,
        limits=limits or SchedulerLimits(),
        clock=clock,
        drafter=drafter,
    )
    return WatchedEngine(engine, clock)


def greedy(new_tokens: int) -> SamplingParams:
    """Exactly so many tokens, the likeliest each."""
    return SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)


def random_prompt(drawn: random.Random, tokens: int, vocab_size: int) -> tuple[int, ...]:
    """Token ids that no other prompt has, so that nothing is found in the prefix cache."""
    return tuple(drawn.choices(range(ORDINARY_IDS_FROM, vocab_size), k=tokens))
