"""One request with several prompts or choices: one prompt computed, one count, one finish."""

import struct
from itertools import pairwise

import pytest

from inference.contracts import (
    BLOCK_TOKENS,
    Chunk,
    Finish,
    FinishReason,
    GenerationRequest,
    RefusalCode,
    SamplingParams,
    TokenCounts,
)
from inference.engine.engine import Engine
from inference.engine.request import SEQUENCES_LIVE_MAX
from inference.engine.scheduling.scheduler import SchedulerLimits
from tests.inference.engine.driving import Clock, make_engine, request
from tests.inference.engine.stub_runner import StubRunner, expected_output

PROMPT = tuple(range(3 * BLOCK_TOKENS + 5))
GREEDY = SamplingParams(max_tokens=6, temperature=0.0)


def run(engine: Engine) -> tuple[list[Chunk], list[Finish]]:
    chunks: list[Chunk] = []
    finishes: list[Finish] = []
    while engine.has_work:
        result = engine.step()
        engine.check()
        chunks += result.chunks
        finishes += result.finishes
    return chunks, finishes


def ids_of(chunks: list[Chunk], choice: int) -> list[int]:
    return [token for c in chunks if c.choice == choice for token in c.token_ids]


def test_choices_share_their_prompt_and_count_it_once() -> None:
    runner = StubRunner()
    engine = make_engine(runner)
    engine.submit(GenerationRequest("n", (PROMPT,), GREEDY, choices=3))

    chunks, finishes = run(engine)

    for choice in range(3):
        assert ids_of(chunks, choice) == expected_output(PROMPT, 6, choice=choice)
    assert [f.counts for f in finishes] == [TokenCounts(len(PROMPT), 0, 18)]
    prompt_computed = sum(len(s.token_ids) for steps in runner.steps for s in steps if s.start < 50)
    assert prompt_computed < len(PROMPT) + 2 * (BLOCK_TOKENS + 6) + 6


def test_each_choice_ends_with_its_own_reason_and_the_request_once() -> None:
    engine = make_engine(
        StubRunner(script=lambda _id, position: 7 if position == 2 else None), stop_ids=(8,)
    )
    sampling = SamplingParams(max_tokens=4, temperature=0.0, stop_token_ids=(7,))
    engine.submit(GenerationRequest("n", (PROMPT,), sampling, choices=2))
    engine.submit(GenerationRequest("long", (PROMPT,), GREEDY, choices=2))

    chunks, finishes = run(engine)

    ends = {(c.request_id, c.choice): c.finish_reason for c in chunks if c.finish_reason}
    assert ends == {
        ("n", 0): FinishReason.STOP,
        ("n", 1): FinishReason.STOP,
        ("long", 0): FinishReason.LENGTH,
        ("long", 1): FinishReason.LENGTH,
    }
    assert {f.request_id: f.reason for f in finishes} == {
        "n": FinishReason.STOP,
        "long": FinishReason.LENGTH,
    }


def test_a_seeded_choice_draws_by_its_number() -> None:
    runner = StubRunner()
    engine = make_engine(runner)
    engine.submit(GenerationRequest("n", (PROMPT, PROMPT[:9]), GREEDY, choices=2))

    run(engine)

    drawn = {
        s.sequence_id: spec.choice for steps in runner.steps for s in steps for spec in s.samples
    }
    assert drawn == {f"n/{choice}": choice for choice in range(4)}


def test_several_prompts_are_answered_in_their_order() -> None:
    prompts = tuple(tuple(range(start, start + 20)) for start in range(5))
    engine = make_engine(StubRunner())
    engine.submit(GenerationRequest("p", prompts, GREEDY))

    chunks, finishes = run(engine)

    for choice, prompt in enumerate(prompts):
        assert ids_of(chunks, choice) == expected_output(prompt, 6, choice=choice)
    assert finishes[0].counts.prompt == 100
    assert finishes[0].counts.completion == 30


def test_counts_only_grow_and_end_as_the_finish_says() -> None:
    engine = make_engine(StubRunner(block_count=12))
    engine.submit(GenerationRequest("n", (PROMPT, PROMPT[::-1]), GREEDY, choices=2))

    chunks, finishes = run(engine)

    seen = [chunk.counts for chunk in chunks]
    assert all(a.completion <= b.completion for a, b in pairwise(seen))
    assert all(a.prompt <= b.prompt for a, b in pairwise(seen))
    assert seen[-1] == finishes[0].counts


def test_an_abort_takes_all_sequences_with_it() -> None:
    engine = make_engine(StubRunner())
    engine.submit(GenerationRequest("n", (PROMPT,), GREEDY, choices=5))
    for _ in range(3):
        engine.step()

    finish = engine.abort("n")
    engine.check()

    assert finish is not None
    assert finish.reason is FinishReason.CANCELLED
    assert finish.counts.prompt == len(PROMPT)
    assert finish.counts.completion > 0
    assert not engine.has_work


def test_many_sequences_wait_in_their_request() -> None:
    engine = make_engine(StubRunner(), limits=SchedulerLimits(waiting_max=4, running_max=4))
    prompts = tuple((1, 2, index % 50) for index in range(3 * SEQUENCES_LIVE_MAX))

    refusal = engine.submit(GenerationRequest("many", prompts, SamplingParams(max_tokens=1)))
    waiting = engine.stats().waiting
    _, finishes = run(engine)

    assert refusal is None
    assert waiting <= SEQUENCES_LIVE_MAX
    assert finishes[0].counts.completion == len(prompts)


def test_an_embedding_is_the_normalized_mean_whatever_the_chunking() -> None:
    prompt = tuple(range(50))
    engine = make_engine(StubRunner(), limits=SchedulerLimits(step_tokens_max=8, running_max=8))
    engine.submit(GenerationRequest("e", (prompt, prompt[:3]), None))
    engine.submit(request("chat", PROMPT, 4))

    chunks, finishes = run(engine)

    vectors = {c.choice: struct.unpack("<2f", c.embedding) for c in chunks if c.request_id == "e"}
    length = (sum(prompt) ** 2 + 50**2) ** 0.5
    assert vectors[0] == pytest.approx((sum(prompt) / length, 50 / length))
    assert vectors[1] == pytest.approx((3 / 18**0.5, 3 / 18**0.5))
    counts = {f.request_id: f.counts for f in finishes}
    assert counts["e"] == TokenCounts(53, 0, 0)


def test_an_embedding_never_starts_from_the_cache() -> None:
    prompt = tuple(range(50))
    engine = make_engine(StubRunner())
    engine.submit(request("chat", prompt, 1))
    run(engine)

    engine.submit(GenerationRequest("e", (prompt,), None))
    chunks, finishes = run(engine)

    assert finishes[0].counts.cached == 0
    assert struct.unpack("<2f", chunks[0].embedding)[1] == pytest.approx(
        50 / (sum(prompt) ** 2 + 50**2) ** 0.5
    )


def test_before_min_tokens_nothing_ends_an_answer() -> None:
    runner = StubRunner(
        vocab_size=200, script=lambda _id, position: ord("z") if position % 2 else 10
    )
    engine = make_engine(runner, texts=_Bytes(), stop_ids=(99,))
    sampling = SamplingParams(max_tokens=9, temperature=0.0, stop=("\n",), min_tokens=5)
    engine.submit(GenerationRequest("m", (PROMPT,), sampling))

    chunks, finishes = run(engine)

    assert "".join(c.text for c in chunks) == "\nz\nz\nz"
    assert finishes[0].counts.completion == 7
    banned = [spec.banned_ids for steps in runner.steps for s in steps for spec in s.samples]
    assert banned == [(99,)] * 5 + [()] * 2


class _Bytes:
    def of(self, token_id: int) -> bytes:
        return bytes([token_id])


def test_who_waits_too_long_is_refused_and_not_charged() -> None:
    clock = Clock()
    engine = make_engine(
        StubRunner(block_count=8), limits=SchedulerLimits(running_max=1), clock=clock
    )
    engine.submit(request("runs", PROMPT, 60))
    waiting = GenerationRequest("waits", (PROMPT,), GREEDY, queue_timeout_s=5.0)
    engine.submit(waiting)
    engine.step()

    clock.now_s += 6.0
    result = engine.step()

    assert [f.error_code for f in result.finishes] == [RefusalCode.QUEUE_TIMEOUT]
    assert result.finishes[0].counts == TokenCounts()
    assert engine.abort("waits") is None


def test_a_deadline_ends_what_runs_with_what_it_has() -> None:
    clock = Clock()
    engine = make_engine(StubRunner(), clock=clock)
    engine.submit(GenerationRequest("late", (PROMPT,), GREEDY, queue_timeout_s=1.0, deadline_s=5.0))
    engine.step()
    engine.step()

    clock.now_s += 2.0
    still_there = engine.step().finishes == ()
    clock.now_s += 4.0
    result = engine.step()

    assert still_there
    assert [f.reason for f in result.finishes] == [FinishReason.TIMED_OUT]
    assert result.finishes[0].counts == TokenCounts(len(PROMPT), 0, 3)


def test_a_failing_sequence_ends_its_request_and_no_other() -> None:
    class Picky(StubRunner):
        def execute(self, steps):  # type: ignore[no-untyped-def]  # as the stub's
            if any(step.sequence_id == "bad/1" for step in steps):
                raise RuntimeError("not this one")
            return super().execute(steps)

    engine = make_engine(Picky())
    engine.submit(GenerationRequest("bad", (PROMPT,), GREEDY, choices=3))
    engine.submit(request("good", PROMPT, 6))

    _, finishes = run(engine)

    assert {f.request_id: f.reason for f in finishes} == {
        "bad": FinishReason.ERROR,
        "good": FinishReason.LENGTH,
    }
