"""Speculation through the engine's door: whatever is guessed, answers are what they would be."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import (
    FinishReason,
    GenerationRequest,
    Grammar,
    GrammarKind,
    SamplingParams,
)
from inference.engine.draft_length import RowCosts
from inference.engine.grammar import GrammarMatcher
from inference.engine.ngram_drafts import NgramDrafts
from inference.engine.scheduler import SchedulerLimits
from inference.engine.sequence import SequenceState
from inference.engine.speculation import Drafter, Speculation
from inference.engine.step import SampleSpec, SequenceStep, StepOutput
from tests.inference.engine.drafting import Eager, Guesses
from tests.inference.engine.driving import Answers, advance, make_engine, request, run_to_end
from tests.inference.engine.stub_runner import ByteTokens, StubRunner, expected_output

VOCABULARY = 100
PERIODIC = SamplingParams(max_tokens=40, temperature=0.0)


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
    asked = GenerationRequest("n", ((1, 2),), PERIODIC, choices=3)
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


def scripted(text: bytes) -> Callable[[str, int], int | None]:
    return lambda _request_id, position: text[position] if position < len(text) else ord(".")


def following(text: bytes) -> Callable[[SequenceState, int], Sequence[int]]:
    return lambda state, count: list(text[state.completion : state.completion + count])


def said(
    text: bytes, sampling: SamplingParams, drafter: Drafter | None, stop_ids: Sequence[int] = ()
) -> tuple[Answers, StubRunner]:
    runner = StubRunner(vocab_size=256, script=scripted(text))
    engine = make_engine(runner, texts=ByteTokens(), stop_ids=stop_ids, drafter=drafter)
    assert engine.submit(GenerationRequest("r", ((1, 2, 3),), sampling)) is None
    return run_to_end(engine), runner


TEXT = b"The City of Nowhere has a river, and the river has a bridge."


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=60, stop=("ty of No",)),
        SamplingParams(max_tokens=60, stop=("ver",), min_tokens=32),
        SamplingParams(max_tokens=60, stop_token_ids=(ord(","),)),
        SamplingParams(max_tokens=60, stop_token_ids=(ord("C"),), min_tokens=5),
        SamplingParams(max_tokens=13),
    ],
)
def test_an_answer_ends_where_it_would_end_without_guesses(sampling: SamplingParams) -> None:
    plain, plain_runner = said(TEXT, sampling, None)
    guessed, runner = said(TEXT, sampling, Eager(Guesses(following(TEXT))))

    assert guessed.text("r") == plain.text("r")
    assert guessed.token_ids == plain.token_ids
    assert guessed.finishes["r"].reason == plain.finishes["r"].reason
    assert guessed.finishes["r"].counts == plain.finishes["r"].counts
    assert len(runner.steps) < len(plain_runner.steps) / 2


def test_what_ends_the_answer_is_never_guessed_unless_it_is_ignored() -> None:
    text = b"ab\x00cd"
    ended, runner = said(text, PERIODIC, Eager(Guesses(following(text)), end_ids=[0]), [0])
    ignoring = replace(PERIODIC, ignore_eos=True, max_tokens=6)
    ignored, _ = said(text, ignoring, Eager(Guesses(following(text)), end_ids=[0]), [0])

    assert ended.finishes["r"].reason is FinishReason.STOP
    assert ended.token_ids["r"] == [ord("a"), ord("b"), 0]
    assert not any(0 in step.token_ids for steps in runner.steps for step in steps)
    assert ignored.token_ids["r"] == [*text, ord(".")]


def specs_that_counted(runner: StubRunner) -> dict[int, SampleSpec]:
    """By position; where a position was drawn at several times the last one counted."""
    return {
        spec.position: replace(spec, output_ids=tuple(spec.output_ids))
        for steps in runner.steps
        for step in steps
        for spec in step.samples
    }


def test_each_position_is_drawn_as_it_would_be_without_guesses() -> None:
    """Penalties, bans, noise and log probabilities are all in what the runner is told."""
    sampling = SamplingParams(
        max_tokens=60,
        temperature=0.7,
        seed=11,
        presence_penalty=2.0,
        frequency_penalty=-2.0,
        repetition_penalty=1.3,
        stop_token_ids=(2,),
        min_tokens=30,
        logit_bias=((5, 1.5),),
        logprobs=3,
    )
    drawn = random.Random(5)

    def half_right(state: SequenceState, count: int) -> list[int]:
        right = drawn.randrange(count + 1)
        return [*following(TEXT)(state, right), *(drawn.randrange(256) for _ in range(3))]

    plain, plain_runner = said(TEXT, sampling, None)
    guessed, runner = said(TEXT, sampling, Eager(Guesses(half_right)))

    assert guessed.token_ids == plain.token_ids
    assert specs_that_counted(runner) == specs_that_counted(plain_runner)
    assert len(runner.steps) < len(plain_runner.steps)


class Alternating:
    """A grammar: even and odd token ids in turn. `masks` refuses guesses it does not allow."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def masks(self, drafts: Sequence[int]) -> list[bytes]:
        assert self.allowed_prefix(drafts) == len(drafts)
        ahead = range(len(self.taken), len(self.taken) + len(drafts) + 1)
        return [bytes([0b10101010 if place % 2 else 0b01010101]) * 32 for place in ahead]

    def allowed_prefix(self, drafts: Sequence[int]) -> int:
        for index, draft in enumerate(drafts):
            if draft % 2 != (len(self.taken) + index) % 2:
                return index
        return len(drafts)

    def advance(self, token_id: int) -> None:
        assert self.allowed_prefix([token_id]) == 1
        self.taken.append(token_id)


class Alternations:
    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        return Alternating()


def constrained(sampling: SamplingParams, drafter: Drafter | None) -> tuple[Answers, StubRunner]:
    text = bytes(2 * n + n % 2 for n in range(60))
    runner = StubRunner(vocab_size=256, script=scripted(text))
    engine = make_engine(runner, texts=ByteTokens(), drafter=drafter, grammars=Alternations())
    assert engine.submit(GenerationRequest("r", ((1,),), sampling)) is None
    return run_to_end(engine), runner


def test_guesses_keep_to_the_grammar_and_are_drawn_under_its_masks() -> None:
    sampling = SamplingParams(max_tokens=40, grammar=Grammar(GrammarKind.REGEX, "x"))
    drawn = random.Random(2)

    def sometimes_forbidden(state: SequenceState, count: int) -> list[int]:
        right = [2 * n + n % 2 for n in range(state.completion, state.completion + count)]
        return [t if drawn.random() < 0.8 else t + 1 for t in right]

    plain, plain_runner = constrained(sampling, None)
    guessed, runner = constrained(sampling, Eager(Guesses(sometimes_forbidden)))

    assert guessed.token_ids == plain.token_ids
    assert specs_that_counted(runner) == specs_that_counted(plain_runner)
    assert len(runner.steps) < len(plain_runner.steps)


def test_nothing_is_guessed_where_grammar_and_minimum_could_leave_nothing_to_draw() -> None:
    sampling = SamplingParams(max_tokens=12, min_tokens=8, grammar=Grammar(GrammarKind.REGEX, "x"))

    _, runner = constrained(sampling, Eager(Guesses(lambda state, _count: [state.completion])))

    first_drafted = min(
        step.samples[0].position
        for steps in runner.steps
        for step in steps
        if len(step.samples) > 1
    )
    assert first_drafted == 8


def test_guessing_stops_where_the_text_is_new_and_starts_again_where_it_repeats() -> None:
    new = bytes(range(100, 240))
    text = new[:70] + b"tick tock " * 12
    runner = StubRunner(vocab_size=256, script=scripted(text))
    guesses = following(b"x" * 70 + text[70:])
    costs = RowCosts((1, 9), (1.0, 2.0))
    engine = make_engine(
        runner,
        texts=ByteTokens(),
        drafter=Speculation(Guesses(guesses), end_ids=(), checking=costs),
    )
    assert engine.submit(GenerationRequest("r", ((1,),), SamplingParams(max_tokens=190))) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == list(text)
    drafts_at = {
        step.samples[0].position: len(step.samples) - 1 for steps in runner.steps for step in steps
    }
    assert sum(drafts_at.get(position, 0) for position in range(10)) > 0
    assert sum(drafts_at.get(position, 0) for position in range(10, 70)) == 0
    assert engine.stats().accepted_tokens > 60


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


def test_lookup_speeds_up_an_answer_that_repeats() -> None:
    line = b"one more line of the song\n"
    text = line * 4
    sampling = SamplingParams(max_tokens=len(text))

    plain, plain_runner = said(text, sampling, None)
    guessed, runner = said(text, sampling, Eager(NgramDrafts()))

    assert guessed.token_ids == plain.token_ids
    assert len(runner.steps) < len(plain_runner.steps) / 2
