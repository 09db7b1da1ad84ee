"""Scripted texts with guesses: stops, minimums, penalties and grammars are as without them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from inference.contracts import (
    FinishReason,
    GenerationRequest,
    Grammar,
    GrammarKind,
    SamplingParams,
)
from inference.engine.answering.grammar import GrammarMatcher
from inference.engine.drafting.draft_length import RowCosts
from inference.engine.drafting.ngram_drafts import NgramDrafts
from inference.engine.drafting.speculation import Drafter, Speculation
from inference.engine.sequence import SequenceState
from inference.engine.step import SampleSpec
from tests.inference.engine.drafting.drafters import Eager, Guesses
from tests.inference.engine.driving import Answers, make_engine, run_to_end
from tests.inference.engine.stub_runner import ByteTokens, StubRunner

GREEDY = SamplingParams(max_tokens=40, temperature=0.0)


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
    ended, runner = said(text, GREEDY, Eager(Guesses(following(text)), end_ids=[0]), [0])
    ignoring = replace(GREEDY, ignore_eos=True, max_tokens=6)
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


def test_lookup_speeds_up_an_answer_that_repeats() -> None:
    line = b"one more line of the song\n"
    text = line * 4
    sampling = SamplingParams(max_tokens=len(text))

    plain, plain_runner = said(text, sampling, None)
    guessed, runner = said(text, sampling, Eager(NgramDrafts()))

    assert guessed.token_ids == plain.token_ids
    assert len(runner.steps) < len(plain_runner.steps) / 2
