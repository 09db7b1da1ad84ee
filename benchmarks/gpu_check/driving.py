"""Drives an engine to answers, or to the point where all its streams decode and can be timed."""

import time
from collections import Counter
from collections.abc import Sequence

from inference.contracts import FinishReason, GenerationRequest, SamplingParams
from inference.engine.engine import Engine, StepResult
from inference.engine.overlapped import OverlappedEngine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import LaunchingRunner, Runner

STEPS_MAX = 10_000
READING_STEPS_MAX = 32
"""Until all prompts of a measurement are read."""


class NoTexts:
    """Every token is a letter: text costs what it costs, and nobody reads it."""

    def of(self, token_id: int) -> bytes:
        """The same for every token."""
        return b"a"


def engine_over(runner: Runner, *, running_max: int, step_tokens_max: int) -> Engine:
    """An engine that reads each step before it plans the next."""
    return Engine(
        runner,
        NoTexts(),
        stop_ids=(),
        limits=_limits(running_max, step_tokens_max),
        clock=time.monotonic,
    )


def overlapped_engine_over(
    runner: LaunchingRunner, *, running_max: int, step_tokens_max: int
) -> OverlappedEngine:
    """One that launches the next step before it reads the one before."""
    return OverlappedEngine(
        runner,
        NoTexts(),
        stop_ids=(),
        limits=_limits(running_max, step_tokens_max),
        clock=time.monotonic,
    )


def submit(engine: Engine, prompts: Sequence[Sequence[int]], tokens: int) -> None:
    """A greedy request of `tokens` for each prompt, named by its index."""
    for index, prompt in enumerate(prompts):
        refusal = engine.submit(
            GenerationRequest(
                str(index),
                (tuple(prompt),),
                SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True),
            )
        )
        if refusal is not None:
            raise RuntimeError(f"refused: {refusal.error_code} {refusal.error_message}")


def answers(engine: Engine, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """The greedy answers to all prompts at once. Raises RuntimeError where one fails."""
    submit(engine, prompts, tokens)
    drawn: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for _ in range(STEPS_MAX):
        if not engine.has_work:
            break
        for request_id, ids in _tokens(engine.step()):
            drawn[request_id] += ids
    engine.check()
    return list(drawn.values())


def tokens_asked(warm_steps: int, steps: int) -> int:
    """How many tokens each of them asks for, so that none ends while its rate is taken: those that
    start first decode while the others are read."""
    return READING_STEPS_MAX + warm_steps + steps + 2


def decode_rate(
    engine: Engine, prompts: Sequence[Sequence[int]], *, warm_steps: int, steps: int
) -> float:
    """Tokens per second of all streams while each of them decodes; the first `warm_steps` of them
    do not count. The engine must have room for all prompts at once."""
    submit(engine, prompts, tokens_asked(warm_steps, steps))
    streams: Counter[str] = Counter()
    for _ in range(STEPS_MAX):
        if len(streams) == len(prompts):
            break
        streams.update(request_id for request_id, _ in _tokens(engine.step()))
    for _ in range(warm_steps):
        _tokens(engine.step())
    drawn, began_s = 0, time.perf_counter()
    for _ in range(steps):
        drawn += sum(len(ids) for _, ids in _tokens(engine.step()))
    taken_s = time.perf_counter() - began_s
    for index in range(len(prompts)):
        engine.abort(str(index))
    return drawn / taken_s


def _tokens(result: StepResult) -> list[tuple[str, tuple[int, ...]]]:
    """The ids of each chunk."""
    for finish in result.finishes:
        if finish.reason is not FinishReason.LENGTH:
            raise RuntimeError(
                f"{finish.request_id} ended as {finish.reason}: {finish.error_message}"
            )
    return [(chunk.request_id, chunk.token_ids) for chunk in result.chunks]


def _limits(running_max: int, step_tokens_max: int) -> SchedulerLimits:
    return SchedulerLimits(
        step_tokens_max=max(step_tokens_max, running_max),
        running_max=running_max,
        # Of the queue one client gets half.
        waiting_max=2 * running_max + 1,
        inter_token_target_ms=None,
    )
