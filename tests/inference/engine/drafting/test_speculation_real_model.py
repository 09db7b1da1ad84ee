"""SmolLM2 with guesses answers as it does without: the same tokens and log probabilities."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from inference.contracts import Chunk, GenerationRequest, SamplingParams, TokenLogprob
from inference.engine.computing.runner import load_runner
from inference.engine.drafting.draft_model import DraftModel
from inference.engine.drafting.ngram_drafts import NgramDrafts
from inference.engine.drafting.speculation import Drafter, DraftSource
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.sequence import SequenceState
from inference.engine.step import Runner, SequenceStep, StepOutput
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.prompt import ChatMessage, PromptEncoder
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.conftest import MARGIN_EXACT
from tests.inference.engine.drafting.drafters import Eager, Guesses
from tests.inference.engine.driving import Clock

POOL_TOKENS = 2048
GREEDY = SamplingParams(max_tokens=32, temperature=0.0, logprobs=2)
REPEAT = "Repeat this line three times: the red fox runs over the green hill and the red fox rests"


class Part:
    """Some of a runner's blocks as a runner of its own."""

    def __init__(self, runner: Runner, first: int, block_count: int) -> None:
        self.block_count = block_count
        self.vocab_size = runner.vocab_size
        self.context_tokens_max = runner.context_tokens_max
        self.hidden_size = runner.hidden_size
        self.cache_key = runner.cache_key
        self.device = runner.device
        self._runner = runner
        self._first = first

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        return self._runner.execute(
            [replace(s, block_table=[self._first + b for b in s.block_table]) for s in steps]
        )


@dataclass(frozen=True)
class Said:
    """One answer, and in how many steps it came."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    text: str
    steps: int


class House:
    """The model, half of its blocks for a draft model."""

    def __init__(self, bundle: Bundle, weight_format: str, kv_format: str) -> None:
        runner = load_runner(
            bundle,
            pool_tokens=POOL_TOKENS,
            threads=1,
            device="cpu",
            weight_format=weight_format,
            kv_format=kv_format,
        )
        half = runner.block_count // 2
        self.end_ids = bundle.stop_ids
        self.vocab_size = bundle.vocab_size
        self._model, self._draft = Part(runner, 0, half), Part(runner, half, half)
        self._texts = TokenBytes(bundle)
        self._encoder = PromptEncoder(bundle)

    def itself(self) -> DraftSource:
        return DraftModel(self._draft, vocab_size=self.vocab_size, end_ids=self.end_ids)

    def ask(self, text: str, sampling: SamplingParams, source: DraftSource | None) -> Said:
        drafter: Drafter | None = None if source is None else Eager(source, self.end_ids)
        engine = Engine(
            self._model,
            self._texts,
            stop_ids=self.end_ids,
            limits=SchedulerLimits(),
            clock=Clock(),
            drafter=drafter,
        )
        prompt_ids = tuple(self._encoder.encode_chat([ChatMessage("user", text)]))
        assert engine.submit(GenerationRequest("r", (prompt_ids,), sampling)) is None
        chunks: list[Chunk] = []
        while engine.has_work:
            chunks += engine.step().chunks
            engine.check()
        return Said(
            token_ids=tuple(t for chunk in chunks for t in chunk.token_ids),
            logprobs=tuple(p for chunk in chunks for p in chunk.logprobs),
            text="".join(chunk.text for chunk in chunks),
            steps=len(chunks),
        )


@pytest.fixture(scope="module")
def house(bundle: Bundle) -> House:
    return House(bundle, "float32", "float32")


@pytest.fixture(scope="module")
def plain(house: House) -> Said:
    return house.ask(REPEAT, GREEDY, None)


def assert_same(guessed: Said, plain: Said) -> None:
    """Equal, up to a choice between two tokens that rounding could turn around."""
    for index, (ours, theirs) in enumerate(zip(guessed.logprobs, plain.logprobs, strict=False)):
        if ours.token_id != theirs.token_id:
            (_, best), (_, second) = theirs.top[:2]
            assert best - second < MARGIN_EXACT, f"token {index} differs"
            return
        assert ours.logprob == pytest.approx(theirs.logprob, abs=MARGIN_EXACT)
        assert dict(ours.top) == pytest.approx(dict(theirs.top), abs=MARGIN_EXACT)
    assert guessed.token_ids == plain.token_ids
    assert guessed.text == plain.text


def test_lookup_is_token_equal_in_fewer_steps(house: House, plain: Said) -> None:
    guessed = house.ask(REPEAT, GREEDY, NgramDrafts())

    assert_same(guessed, plain)
    assert guessed.steps < plain.steps * 0.7


def test_one_guess_a_step_is_token_equal(house: House, plain: Said) -> None:
    lookup = NgramDrafts()

    def one(state: SequenceState, _count: int) -> list[int]:
        lookup.propose([(state, 1)])
        return state.drafts

    guessed = house.ask(REPEAT, GREEDY, Guesses(one))

    assert_same(guessed, plain)
    assert guessed.steps < plain.steps


def test_the_model_as_its_own_draft_is_token_equal(house: House, plain: Said) -> None:
    guessed = house.ask(REPEAT, GREEDY, house.itself())

    assert_same(guessed, plain)
    assert guessed.steps < plain.steps / 4


def test_random_guesses_are_token_equal(house: House, plain: Said) -> None:
    drawn = random.Random(4)
    source = Guesses(lambda _state, count: drawn.choices(range(house.vocab_size), k=count))

    guessed = house.ask(REPEAT, GREEDY, source)

    assert_same(guessed, plain)
    assert guessed.steps == plain.steps


@pytest.mark.parametrize("penalty", [2.0, -2.0])
def test_penalties_count_guessed_tokens_as_drawn_ones(house: House, penalty: float) -> None:
    sampling = replace(GREEDY, frequency_penalty=penalty, presence_penalty=penalty / 2)

    plain = house.ask(REPEAT, sampling, None)
    guessed = house.ask(REPEAT, sampling, NgramDrafts())

    assert_same(guessed, plain)


def test_a_seeded_answer_is_the_same_with_lookup_and_with_a_draft_model(house: House) -> None:
    sampling = replace(GREEDY, temperature=0.7, top_p=0.95, seed=3, logprobs=None)

    plain = house.ask(REPEAT, sampling, None)
    looked_up = house.ask(REPEAT, sampling, NgramDrafts())
    drafted = house.ask(REPEAT, sampling, house.itself())

    assert looked_up.token_ids == drafted.token_ids == plain.token_ids
    assert drafted.steps < plain.steps / 4


def test_a_stop_string_across_guesses_cuts_the_same_text(house: House, plain: Said) -> None:
    middle = len(plain.text) // 2
    sampling = replace(GREEDY, stop=(plain.text[middle : middle + 9],))

    stopped = house.ask(REPEAT, sampling, None)
    guessed = house.ask(REPEAT, sampling, house.itself())

    assert guessed.text == stopped.text
    assert guessed.token_ids == stopped.token_ids
    assert len(stopped.token_ids) < len(plain.token_ids)


def test_in_int8_every_bit_is_that_of_decoding_without_guesses(bundle: Bundle) -> None:
    """There no rounding is small: what it changes in a row, quantizing the row makes large."""
    house = House(bundle, "int8", "int8")
    plain = house.ask(REPEAT, GREEDY, None)

    looked_up = house.ask(REPEAT, GREEDY, NgramDrafts())
    drafted = house.ask(REPEAT, GREEDY, house.itself())

    assert replace(looked_up, steps=plain.steps) == plain
    assert replace(drafted, steps=plain.steps) == plain
    assert drafted.steps < plain.steps / 4
