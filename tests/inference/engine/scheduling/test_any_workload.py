"""Whatever comes, in whatever order: every answer is what it would be alone, every request ends
exactly once with the right counts, and no block is lost. Requests of several sequences, embeddings,
guesses, keys, time limits, aborts, tiny pools and steps bounded by time, all mixed."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import (
    BLOCK_TOKENS,
    Chunk,
    Finish,
    FinishReason,
    GenerationRequest,
    Priority,
    RefusalCode,
    SamplingParams,
    TokenCounts,
)
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.sequence import SequenceState
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.driving import Clock
from tests.inference.engine.stub_runner import Letters, StubRunner, expected_output

ARRIVING_STEPS = 30
STEPS_MAX = 5_000


class SlowRunner(StubRunner):
    """Steps take time by their tokens, so that the scheduler learns and bounds them."""

    def __init__(self, clock: Clock, block_count: int, token_s: float) -> None:
        super().__init__(block_count=block_count)
        self._clock = clock
        self._token_s = token_s

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        self._clock.now_s += 0.02 + self._token_s * sum(len(step.token_ids) for step in steps)
        return super().execute(steps)


class HalfRight:
    """Guesses of which the first is right and the second depends on the position."""

    def draft(self, states: Sequence[SequenceState]) -> None:
        for state in states:
            sampling = state.request.sampling
            assert sampling is not None
            room = min(3, sampling.max_tokens - state.completion - 1)
            right = expected_output(
                state.prompt_ids,
                state.completion + room,
                choice=state.choice,
            )[state.completion :]
            state.drafts = [
                (token + (state.completion % 2) * (index > 0)) % 100
                for index, token in enumerate(right)
            ]

    def checked(self, state: SequenceState, drafted: int, accepted: int) -> None:
        assert 0 <= accepted <= drafted

    def forget(self, state: SequenceState) -> None:
        pass


@dataclass(frozen=True)
class Arrival:
    """A request that comes before some step, and maybe is aborted before another."""

    step: int
    request: GenerationRequest
    abort_step: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    """Prompts over two letters with common prefixes, so that blocks are shared a lot."""
    prompts = tuple(
        (7,) * draw(st.sampled_from([0, 15, 16, 17, 32, 48]))
        + tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=20)))
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])))
    )
    embeds = draw(st.sampled_from([False, False, False, True]))
    step = draw(st.integers(0, ARRIVING_STEPS))
    request = GenerationRequest(
        "unnamed",
        prompts,
        None if embeds else SamplingParams(max_tokens=draw(st.integers(1, 40)), temperature=0.0),
        choices=1 if embeds else draw(st.sampled_from([1, 1, 2, 3])),
        cache_salt=draw(st.sampled_from([b"", b"other"])),
        priority=draw(st.sampled_from(Priority)),
        fairness_key=draw(st.sampled_from([b"a", b"b", b"c"])),
        fairness_weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
        queue_timeout_s=draw(st.sampled_from([None, None, 0.5])),
        deadline_s=draw(st.sampled_from([None, None, 2.0])),
    )
    return Arrival(step, request, draw(st.none() | st.integers(step, 2 * ARRIVING_STEPS)))


@dataclass
class Books:
    """What each request has got, by id and choice."""

    tokens: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    embeddings: dict[tuple[str, int], bytes] = field(default_factory=dict)
    ended: set[tuple[str, int]] = field(default_factory=set)
    counts: dict[str, TokenCounts] = field(default_factory=dict)
    finishes: dict[str, Finish] = field(default_factory=dict)

    def take_chunk(self, chunk: Chunk) -> None:
        place = (chunk.request_id, chunk.choice)
        assert place not in self.ended, "a choice goes on after its end"
        self.tokens.setdefault(place, []).extend(chunk.token_ids)
        if chunk.embedding:
            self.embeddings[place] = chunk.embedding
        if chunk.finish_reason is not None:
            self.ended.add(place)
        self._take_counts(chunk.request_id, chunk.counts)

    def take_finish(self, finish: Finish) -> None:
        assert finish.request_id not in self.finishes, "finished twice"
        self._take_counts(finish.request_id, finish.counts)
        self.finishes[finish.request_id] = finish

    def _take_counts(self, request_id: str, counts: TokenCounts) -> None:
        assert request_id not in self.finishes, "something after the finish"
        before = self.counts.get(request_id, TokenCounts())
        assert counts.prompt >= before.prompt
        assert counts.cached >= before.cached
        assert counts.prompt > before.prompt or counts.cached == before.cached
        assert counts == TokenCounts() or 0 <= counts.cached < counts.prompt
        self.counts[request_id] = counts


def embedding_of(prompt: Sequence[int]) -> bytes:
    """What the stub's hidden states make of a prompt."""
    pooled = (float(sum(prompt)), float(len(prompt)))
    length = sum(value * value for value in pooled) ** 0.5
    return struct.pack("<2f", *(value / length for value in pooled))


def check_answers(books: Books, request: GenerationRequest, finish: Finish) -> None:
    """The answers of a request are the beginnings of what they would be alone; all of them, in full
    length, where it came to its end."""
    complete = finish.reason in (FinishReason.LENGTH, FinishReason.STOP)
    completion = 0
    for choice in range(len(request.prompts) * request.choices):
        prompt = request.prompts[choice // request.choices]
        place = (request.request_id, choice)
        if request.sampling is None:
            embedding = books.embeddings.get(place)
            assert embedding == embedding_of(prompt) if complete or embedding else True
            continue
        tokens = books.tokens.get(place, [])
        completion += len(tokens)
        assert tokens == expected_output(prompt, len(tokens), choice=choice)
        if complete:
            assert len(tokens) == request.sampling.max_tokens
    assert finish.counts.completion == completion
    if complete:
        assert finish.counts.prompt == sum(map(len, request.prompts))


def check_reason(arrival: Arrival, finish: Finish, block_count: int) -> None:
    request = arrival.request
    output_tokens = 0 if request.sampling is None else request.sampling.max_tokens
    longest = max(map(len, request.prompts)) + output_tokens
    if longest > block_count * BLOCK_TOKENS:
        assert finish.error_code == RefusalCode.CONTEXT_LENGTH_EXCEEDED
    elif finish.reason is FinishReason.CANCELLED:
        assert arrival.abort_step is not None
    elif finish.reason is FinishReason.TIMED_OUT:
        assert request.deadline_s is not None
    elif finish.reason is FinishReason.REFUSED:
        assert finish.error_code in (RefusalCode.QUEUE_TIMEOUT, RefusalCode.QUEUE_FULL)
    else:
        embeds = request.sampling is None
        assert finish.reason is (FinishReason.STOP if embeds else FinishReason.LENGTH)


@settings(max_examples=100, deadline=None)
@given(
    comers=st.lists(arrivals(), min_size=1, max_size=14),
    block_count=st.integers(4, 24),
    running_max=st.integers(1, 6),
    extra_step_tokens=st.integers(0, 40),
    target_ms=st.sampled_from([None, 50.0, 200.0]),
    token_ms=st.sampled_from([10.0, 10.0, 300.0]),
    guesses=st.booleans(),
)
def test_everybody_gets_what_they_would_get_alone(
    comers: list[Arrival],
    block_count: int,
    running_max: int,
    extra_step_tokens: int,
    target_ms: float | None,
    token_ms: float,
    guesses: bool,
) -> None:
    clock, books = Clock(), Books()
    runner = SlowRunner(clock, block_count, token_ms / 1000)
    limits = SchedulerLimits(
        step_tokens_max=running_max + extra_step_tokens,
        running_max=running_max,
        waiting_max=40,
        batch_wait_steps_max=5,
        inter_token_target_ms=target_ms,
    )
    engine = Engine(
        runner,
        Letters(),
        stop_ids=(),
        limits=limits,
        clock=clock,
        drafter=HalfRight() if guesses else None,
    )
    requests = {
        f"r{index}": GenerationRequest(
            f"r{index}",
            *(comer.request.prompts, comer.request.sampling, comer.request.choices),
            cache_salt=comer.request.cache_salt,
            priority=comer.request.priority,
            fairness_key=comer.request.fairness_key,
            fairness_weight=comer.request.fairness_weight,
            queue_timeout_s=comer.request.queue_timeout_s,
            deadline_s=comer.request.deadline_s,
        )
        for index, comer in enumerate(comers)
    }
    step = 0
    while step <= 2 * ARRIVING_STEPS or engine.has_work:
        for (request_id, request), comer in zip(requests.items(), comers, strict=True):
            said = [
                engine.submit(request) if comer.step == step else None,
                engine.abort(request_id) if comer.abort_step == step else None,
            ]
            for finish in filter(None, said):
                books.take_finish(finish)
        if engine.has_work:
            result = engine.step()
            for chunk in result.chunks:
                books.take_chunk(chunk)
            for finish in result.finishes:
                books.take_finish(finish)
        engine.check()
        assert engine.stats().running <= running_max
        step += 1
        assert step < STEPS_MAX, "somebody never ends"

    assert set(books.finishes) == set(requests)
    for comer, (request_id, request) in zip(comers, requests.items(), strict=True):
        check_answers(books, request, books.finishes[request_id])
        check_reason(comer, books.finishes[request_id], block_count)
    stats = engine.stats()
    counts = [finish.counts for finish in books.finishes.values()]
    assert stats.prompt_tokens == sum(count.prompt for count in counts)
    assert stats.prompt_tokens_cached == sum(count.cached for count in counts)
    assert all(
        sum(len(part.token_ids) for part in parts) <= limits.step_tokens_max
        for parts in runner.steps
    )
