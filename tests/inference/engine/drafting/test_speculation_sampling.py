"""Sampled answers with guesses have the distribution of the model, through the real sampler."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch

from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.computing.sampler import sample
from inference.engine.drafting.draft_model import DraftModel
from inference.engine.drafting.speculation import Drafter, DraftSource
from inference.engine.sequence import SequenceState
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.drafting.drafters import Eager, Guesses
from tests.inference.engine.driving import make_engine

VOCABULARY = 4
TOKENS = 4
SEEDS, CHOICES = 8, 100
CHI_SQUARE_999 = 37.7
"""Exceeded by chance in one of a thousand runs, at 4 * 4 - 1 degrees of freedom."""


class Chain:
    """A model whose logits depend on the last token alone, so that any answer's chance is known."""

    block_count = 64
    vocab_size = VOCABULARY
    hidden_size = 1
    context_tokens_max = 64
    cache_key = b"chain"
    device = "cpu"

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(VOCABULARY, VOCABULARY, generator=generator) * 1.5
        self.rows = 0

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        outputs = []
        for step in steps:
            count = len(step.samples)
            self.rows += count
            last = torch.tensor(list(step.token_ids[len(step.token_ids) - count :]))
            drawn = sample(self.logits[last].clone(), step.samples) if count else []
            outputs.append(StepOutput(tuple(drawn)))
        return outputs


def answers_of(chain: Chain, source: DraftSource | None) -> list[tuple[int, ...]]:
    """Four tokens after token 0, for many seeds and choices."""
    drafter: Drafter | None = None if source is None else Eager(source)
    engine = make_engine(chain, drafter=drafter)
    answers: dict[tuple[str, int], list[int]] = {}
    for seed in range(SEEDS):
        sampling = SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=seed)
        refusal = engine.submit(GenerationRequest(f"s{seed}", ((0,),), sampling, choices=CHOICES))
        assert refusal is None
        while engine.has_work:
            for chunk in engine.step().chunks:
                answers.setdefault((chunk.request_id, chunk.choice), []).extend(chunk.token_ids)
    return [tuple(answers[key]) for key in sorted(answers)]


def chi_square(chain: Chain, answers: Sequence[tuple[int, ...]]) -> float:
    """Of the last two tokens, those with most guesses before them."""
    chances = chain.logits.double().softmax(-1)
    third = (chances @ chances @ chances)[0]
    expected: list[list[float]] = (third[:, None] * chances * len(answers)).tolist()
    counts = Counter(answer[2:] for answer in answers)
    return sum(
        (counts[x, y] - expected[x][y]) ** 2 / expected[x][y]
        for x in range(VOCABULARY)
        for y in range(VOCABULARY)
    )


def likeliest(chain: Chain) -> Callable[[SequenceState, int], Sequence[int]]:
    def guess(state: SequenceState, count: int) -> list[int]:
        guesses = [state.token_ids[-1]]
        for _ in range(count):
            guesses.append(int(chain.logits[guesses[-1]].argmax()))
        return guesses[1:]

    return guess


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain(seed=1)


@pytest.fixture(scope="module")
def plain(chain: Chain) -> list[tuple[int, ...]]:
    return answers_of(chain, None)


@pytest.mark.parametrize("kind", ["likeliest", "constant", "another model"])
def test_guesses_leave_the_distribution_and_each_draw_as_they_are(
    kind: str, chain: Chain, plain: list[tuple[int, ...]]
) -> None:
    sources: dict[str, DraftSource] = {
        "likeliest": Guesses(likeliest(chain)),
        "constant": Guesses(lambda _state, count: [2] * count),
        "another model": DraftModel(Chain(seed=2), vocab_size=VOCABULARY, end_ids=()),
    }
    chain.rows = 0

    guessed = answers_of(chain, sources[kind])

    assert chain.rows > SEEDS * CHOICES * TOKENS
    assert chi_square(chain, guessed) < CHI_SQUARE_999
    assert guessed == plain


def test_the_measure_notices_a_wrong_distribution(
    chain: Chain, plain: list[tuple[int, ...]]
) -> None:
    """As if every fifth likely guess had been taken without being drawn."""
    best = int(chain.logits[0].argmax())
    biased = [(*a[:2], best, a[3]) if n % 5 == 0 else a for n, a in enumerate(plain)]

    assert chi_square(chain, plain) < CHI_SQUARE_999
    assert chi_square(chain, biased) > CHI_SQUARE_999
