"""Speculation through the engine's door: whatever is guessed, answers are what they would be."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import (
    FinishReason,
    GenerationRequest,
    SamplingParams,
)
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.sequence import SequenceState
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.drafting.drafters import Eager, Guesses
from tests.inference.engine.driving import Answers, advance, make_engine, request, run_to_end
from tests.inference.engine.stub_runner import StubRunner, expected_output

VOCABULARY = 100
GREEDY = SamplingParams(max_tokens=40, temperature=0.0)


def oracle(state: SequenceState, count: int) -> list[int]:
    """What the stub will really draw."""
    known = state.completion
    output = expected_output(state.prompt_ids, known + count, choice=state.choice)
    return output[known:]


def wrong(state: SequenceState, count: int) -> list[int]:
    return [(token_id + 1) % VOCABULARY for token_id in oracle(state, count)]


def first_only(state: SequenceState, count: int) -> list[int]:
    return wrong(state, 1)


def mixed(drawn: random.Random) -> Callable[[SequenceState, int], Sequence[int]]:
    """Right up to some place, wrong or missing behind it."""

    def guess(state: SequenceState, count: int) -> list[int]:
        right = drawn.randrange(count + 1)
        return [
            *oracle(state, count)[:right],
            *(drawn.randrange(VOCABULARY) for _ in range(drawn.randrange(count + 1))),
        ]

    return guess


@dataclass(frozen=True)
class Comer:
    """A request, and after how many steps it is aborted, if ever."""

    prompt: tuple[int, ...]
    max_tokens: int
    choices: int
    abort_step: int | None


@st.composite
def comers(draw: st.DrawFn) -> Comer:
    shared = draw(st.sampled_from([0, 15, 16, 17, 33]))
    own = draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
    return Comer(
        prompt=(7,) * shared + tuple(own),
        max_tokens=draw(st.integers(1, 40)),
        choices=draw(st.integers(1, 3)),
        abort_step=draw(st.none() | st.integers(0, 25)),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(comers(), min_size=1, max_size=6),
    st.integers(5, 24),
    st.integers(1, 6),
    st.integers(0, 40),
    st.integers(0, 1 << 32),
)
def test_any_guesses_give_the_answers_of_none(
    given_comers: list[Comer], block_count: int, running_max: int, extra: int, seed: int
) -> None:
    runner = StubRunner(block_count=block_count)
    limits = SchedulerLimits(step_tokens_max=running_max + extra, running_max=running_max)
    source = Guesses(mixed(random.Random(seed)))
    engine = make_engine(runner, limits=limits, drafter=Eager(source))
    answers = Answers()
    by_choice: dict[tuple[str, int], list[int]] = {}
    for index, comer in enumerate(given_comers):
        asked = GenerationRequest(
            f"r{index}",
            (comer.prompt,),
            SamplingParams(max_tokens=comer.max_tokens, temperature=0.0),
            choices=comer.choices,
        )
        refusal = engine.submit(asked)
        if refusal is not None:
            answers.take_finish(refusal)
    step = 0
    while engine.has_work:
        for index, comer in enumerate(given_comers):
            if comer.abort_step == step and (aborted := engine.abort(f"r{index}")) is not None:
                answers.take_finish(aborted)
        if engine.has_work:
            result = engine.step()
            answers.take(result)
            for chunk in result.chunks:
                by_choice.setdefault((chunk.request_id, chunk.choice), []).extend(chunk.token_ids)
        engine.check()
        step += 1
        assert step < 5_000

    for (request_id, choice), token_ids in by_choice.items():
        comer = given_comers[int(request_id[1:])]
        assert token_ids == expected_output(comer.prompt, len(token_ids), choice=choice)
        if answers.finishes[request_id].reason is FinishReason.LENGTH:
            assert len(token_ids) == comer.max_tokens
    drawing = [step for steps in runner.steps for step in steps if step.samples]
    stats = engine.stats()
    assert stats.drafted_tokens == sum(len(step.samples) - 1 for step in drawing)
    assert stats.generation_tokens == len(drawing) + stats.accepted_tokens
    assert all(
        sum(len(s.token_ids) for s in steps) <= running_max + extra for steps in runner.steps
    )


def test_right_guesses_take_few_steps_and_all_count() -> None:
    runner = StubRunner()
    engine = make_engine(runner, drafter=Eager(Guesses(oracle)))
    assert engine.submit(request("r", [1, 2, 3], 33)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == expected_output([1, 2, 3], 33)
    # One token from the prompt, then seven drafts and one more a step.
    assert len(runner.steps) == 5
    assert (engine.stats().drafted_tokens, engine.stats().accepted_tokens) == (28, 28)


@pytest.mark.parametrize("guess", [wrong, first_only])
def test_wrong_guesses_change_nothing_and_none_counts(
    guess: Callable[[SequenceState, int], Sequence[int]],
) -> None:
    runner = StubRunner()
    engine = make_engine(runner, drafter=Eager(Guesses(guess)))
    assert engine.submit(request("r", [1, 2, 3], 20)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == expected_output([1, 2, 3], 20)
    assert len(runner.steps) == 20
    assert engine.stats().drafted_tokens > 0
    assert engine.stats().accepted_tokens == 0


def test_guesses_never_reach_past_the_end_of_an_answer() -> None:
    runner = StubRunner(block_count=4, context_tokens_max=64)
    engine = make_engine(runner, drafter=Eager(Guesses(oracle)))
    assert engine.submit(request("r", [1] * 40, 24)) is None

    answers = run_to_end(engine)

    assert len(answers.token_ids["r"]) == 24
    assert max(s.start + len(s.token_ids) for steps in runner.steps for s in steps) <= 63


def test_a_prompt_is_read_without_guesses() -> None:
    runner = StubRunner(block_count=64)
    limits = SchedulerLimits(step_tokens_max=64, running_max=4)
    engine = make_engine(runner, limits=limits, drafter=Eager(Guesses(wrong)))
    assert engine.submit(request("r", [1] * 200, 4)) is None

    run_to_end(engine)

    assert [len(steps[0].samples) for steps in runner.steps[:4]] == [0, 0, 0, 1]


def test_preempted_answers_with_guesses_are_right() -> None:
    engine = make_engine(StubRunner(block_count=7), drafter=Eager(Guesses(mixed(random.Random(3)))))
    for index in range(3):
        assert engine.submit(request(f"r{index}", [index] * 20, 60)) is None

    answers = run_to_end(engine)

    assert engine.stats().preemptions > 0
    assert engine.stats().accepted_tokens > 0
    for index in range(3):
        assert answers.token_ids[f"r{index}"] == expected_output([index] * 20, 60)


def test_every_sequence_is_forgotten_once_it_ended_or_was_aborted() -> None:
    source = Guesses(oracle)
    drafter = Eager(source)
    engine = make_engine(StubRunner(), drafter=drafter)
    asked = GenerationRequest("n", ((1, 2),), GREEDY, choices=3)
    assert engine.submit(asked) is None
    assert engine.submit(request("gone", [5] * 5, 60)) is None
    answers = Answers()
    advance(engine, answers, 3)
    aborted = engine.abort("gone")
    assert aborted is not None
    answers.take_finish(aborted)
    run_to_end(engine, answers)

    assert sorted(state.sequence_id for state in source.forgotten) == [
        "gone/0",
        "n/0",
        "n/1",
        "n/2",
    ]
    # Memory must not grow with finished sequences.
    assert not drafter._acceptances


class Fragile(StubRunner):
    """Cannot compute a step that checks token 99, as a grammar may leave nothing to draw there."""

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        if any(99 in step.token_ids for step in steps):
            raise RuntimeError("nothing is left to draw")
        return super().execute(steps)


def test_a_guess_that_cannot_be_computed_fails_nobody() -> None:
    prompts = {"a": [1, 2], "b": [3, 4]}
    assert not any(99 in expected_output(prompt, 20) for prompt in prompts.values())
    runner = Fragile()
    engine = make_engine(runner, drafter=Eager(Guesses(lambda _state, _count: [99])))
    for name, prompt in prompts.items():
        assert engine.submit(request(name, prompt, 20)) is None

    answers = run_to_end(engine)

    for name, prompt in prompts.items():
        assert answers.finishes[name].reason is FinishReason.LENGTH
        assert answers.token_ids[name] == expected_output(prompt, 20)
    assert engine.stats().drafted_tokens == 0


def test_a_source_that_fails_is_asked_no_more_and_fails_nobody() -> None:
    asked = []

    def fails_late(state: SequenceState, count: int) -> list[int]:
        asked.append(state)
        if len(asked) > 2:
            raise RuntimeError("no memory")
        return oracle(state, count)

    engine = make_engine(StubRunner(), drafter=Eager(Guesses(fails_late)))
    for name in ("a", "b"):
        assert engine.submit(request(name, [5, 6], 30)) is None

    answers = run_to_end(engine)

    assert len(asked) == 3
    assert answers.token_ids["a"] == answers.token_ids["b"] == expected_output([5, 6], 30)
