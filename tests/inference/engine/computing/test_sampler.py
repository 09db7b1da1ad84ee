"""Sampling follows the distribution asked for, and its noise depends on nothing but its key."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.computing.sampler import gumbel_noise, kept, noise_bits, noise_key, sample
from inference.engine.step import SampleSpec

SEEDS = st.integers(0, 2**63 - 1)
VOCABULARY = 49_152


def spec(
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    position: int = 0,
) -> SampleSpec:
    return SampleSpec(
        temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, position=position
    )


def draw(logits: torch.Tensor, specs: list[SampleSpec]) -> list[int]:
    return [drawn.token_id for drawn in sample(logits.clone(), specs)]


def kept_ids(probabilities: list[float], *, top_p: float = 1.0, top_k: int = 0) -> list[int]:
    mask = kept(torch.tensor(probabilities).double().log(), top_p=top_p, top_k=top_k)
    if mask is None:
        return list(range(len(probabilities)))
    return [index for index, is_kept in enumerate(mask.tolist()) if is_kept]


def chi_square(counts: Counter[int], probabilities: torch.Tensor) -> float:
    draws = sum(counts.values())
    expected: list[float] = (probabilities * draws).tolist()
    return sum((counts[token] - mean) ** 2 / mean for token, mean in enumerate(expected) if mean)


def test_greedy_takes_the_best_and_of_equals_the_first() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 2.0, 1.0]])

    assert draw(logits, [spec(0.0), spec(0.0)]) == [1, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    draws = 4000

    drawn = draw(logits.expand(draws, -1), [spec(temperature, seed=seed) for seed in range(draws)])

    # 5 degrees of freedom: 25.7 is passed by chance once in ten thousand.
    assert chi_square(Counter(drawn), (logits / temperature).softmax(-1)) < 25.7


def test_frequencies_over_positions_of_one_seed_follow_the_softmax() -> None:
    logits = torch.tensor([1.0, 0.0, 0.0, -1.0])
    draws = 4000

    drawn = draw(
        logits.expand(draws, -1), [spec(seed=7, position=position) for position in range(draws)]
    )

    # 3 degrees of freedom.
    assert chi_square(Counter(drawn), logits.softmax(-1)) < 21.1


def test_frequencies_follow_what_top_p_leaves() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    draws = 3000

    drawn = draw(logits.expand(draws, -1), [spec(top_p=0.6, seed=s) for s in range(draws)])

    assert chi_square(Counter(drawn), torch.tensor([4 / 7, 3 / 7, 0.0, 0.0])) < 15.1
    assert set(drawn) == {0, 1}


def test_successive_draws_are_independent() -> None:
    logits = torch.zeros(4000, 2)
    drawn = draw(logits, [spec(seed=3, position=position) for position in range(4000)])

    pairs = Counter(2 * first + second for first, second in pairwise(drawn))

    assert chi_square(pairs, torch.full((4,), 0.25)) < 21.1


def test_neighbouring_seeds_draw_independently() -> None:
    logits = torch.zeros(4000, 2)
    drawn = draw(logits, [spec(seed=seed) for seed in range(4000)])

    pairs = Counter(2 * first + second for first, second in pairwise(drawn))

    assert chi_square(pairs, torch.full((4,), 0.25)) < 21.1


@given(seed=SEEDS, position=st.integers(0, 10_000), temperature=st.floats(0.1, 2.0))
def test_a_draw_is_the_same_in_any_batch(seed: int, position: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 200, generator=generator)
    wanted = spec(temperature, top_p=0.9, seed=seed, position=position)

    [alone] = draw(logits[2:3], [wanted])
    batch = draw(logits, [spec(0.0), spec(seed=seed + 1), wanted, spec(2.0, top_k=3, seed=5)])

    assert batch[2] == alone


def test_the_choices_of_one_call_draw_differently() -> None:
    token_ids = torch.arange(64)
    noises = {
        tuple(noise_bits(noise_key(5, choice=choice, position=position), token_ids).tolist())
        for choice in range(8)
        for position in range(8)
    }

    assert len(noises) == 64


@given(seed=SEEDS)
def test_noise_of_a_token_does_not_depend_on_its_company(seed: int) -> None:
    key = noise_key(seed, position=0)
    every = noise_bits(key, torch.arange(VOCABULARY))

    some = noise_bits(key, torch.tensor([40_000, 3, 17]))

    assert some.tolist() == every[[40_000, 3, 17]].tolist()


def test_noise_bits_are_those_of_the_published_generator() -> None:
    # splitmix64 from state 1234567: the reference implementation's first outputs.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]

    bits = noise_bits(1234567, torch.arange(3))

    assert bits.tolist() == [word >> 32 for word in published]


def test_noise_is_finite_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([0, 2**32 - 1])
    monkeypatch.setattr("inference.engine.computing.sampler.noise_bits", lambda key, ids: ends)

    noise = gumbel_noise(0, ends)

    assert noise.tolist() == pytest.approx([22.87, -3.13], abs=0.01)


def test_a_tiny_temperature_is_greedy() -> None:
    logits = torch.tensor([[1.0, 1.0001, 0.0]])

    assert draw(logits, [spec(1e-300)]) == [1]


@pytest.mark.parametrize(
    ("top_k", "expected"),
    [(1, [1]), (2, [1, 2]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3]), (0, [0, 1, 2, 3])],
)
def test_top_k_keeps_the_k_most_probable(top_k: int, expected: list[int]) -> None:
    assert kept_ids([0.1, 0.5, 0.3, 0.1], top_k=top_k) == expected


def test_top_k_keeps_the_equals_of_the_last_one_kept() -> None:
    assert kept_ids([0.2, 0.4, 0.2, 0.1, 0.1], top_k=2) == [0, 1, 2]


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1e-9, [1]),
        (0.49, [1]),
        (0.51, [1, 2]),
        (0.79, [1, 2]),
        (0.81, [0, 1, 2]),
        (0.999, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_as_few_as_reach_it(top_p: float, expected: list[int]) -> None:
    assert kept_ids([0.15, 0.5, 0.3, 0.05], top_p=top_p) == expected


def test_top_p_keeps_the_equals_of_the_last_one_kept() -> None:
    assert kept_ids([0.25, 0.25, 0.25, 0.25], top_p=0.3) == [0, 1, 2, 3]
    assert kept_ids([0.5, 0.2, 0.2, 0.1], top_p=0.6) == [0, 1, 2]


def test_top_p_counts_what_top_k_left() -> None:
    assert kept_ids([0.4, 0.2, 0.2, 0.1, 0.1], top_p=0.7) == [0, 1, 2]
    assert kept_ids([0.4, 0.3, 0.2, 0.1], top_p=0.55, top_k=2) == [0]


@given(
    logits=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40),
    top_p=st.floats(0.0, 1.0, exclude_min=True),
    top_k=st.integers(0, 50),
)
def test_what_is_kept_is_a_top_of_the_ranking(
    logits: list[float], top_p: float, top_k: int
) -> None:
    scores = torch.tensor(logits).double()
    mask = kept(scores, top_p=top_p, top_k=top_k)
    if mask is None:
        mask = torch.ones(len(logits), dtype=torch.bool)

    inside, outside = scores[mask], scores[~mask]

    assert inside.numel() >= 1
    assert not outside.numel() or inside.min() > outside.max()


def test_half_of_a_flat_distribution_is_half_of_the_tokens() -> None:
    scores = torch.linspace(0.0, 1e-3, 5000).double()

    mask = kept(scores, top_p=0.5, top_k=0)

    assert mask is not None
    assert int(mask.sum()) == pytest.approx(2500, abs=3)
    assert not mask[: 5000 - int(mask.sum())].any()


def test_draws_come_from_the_whole_vocabulary() -> None:
    logits = torch.zeros(300, VOCABULARY)

    drawn = draw(logits, [spec(seed=seed) for seed in range(300)])

    assert len(set(drawn)) > 290
    assert math.isclose(sum(drawn) / 300, VOCABULARY / 2, rel_tol=0.15)
