"""Penalties, biases, bans and masks change the odds as documented, row by row, and nothing else."""

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.computing.sampler import NothingAllowed, adjust, kept, sample
from inference.engine.step import SampleSpec

LOGITS = [2.0, 1.0, 0.5, -1.0, -2.0]


def adjusted(spec: SampleSpec) -> list[float]:
    logits = torch.tensor(LOGITS)
    adjust(logits, spec)
    return [float(value) for value in logits.tolist()]


def allowed(*token_ids: int) -> bytes:
    """A mask with one word more than the vocabulary needs, as llguidance makes them."""
    word = sum(1 << token_id for token_id in token_ids)
    return struct.pack("<II", word, 0)


def test_presence_and_frequency_count_the_output_only() -> None:
    spec = SampleSpec(
        presence_penalty=0.5, frequency_penalty=0.25, prompt_ids=(0, 0, 3), output_ids=(1, 1, 4)
    )

    assert adjusted(spec) == pytest.approx([2.0, 1.0 - 0.5 - 0.5, 0.5, -1.0, -2.0 - 0.75])


def test_repetition_counts_prompt_and_output_once_each() -> None:
    spec = SampleSpec(repetition_penalty=2.0, prompt_ids=(0, 0, 3), output_ids=(3, 1))

    assert adjusted(spec) == pytest.approx([1.0, 0.5, 0.5, -2.0, -2.0])


def test_a_bias_is_added_and_a_ban_is_final() -> None:
    spec = SampleSpec(logit_bias=((4, 100.0), (0, -1.0)), banned_ids=(4, 1))

    assert adjusted(spec) == [1.0, -math.inf, 0.5, -1.0, -math.inf]


def test_a_mask_leaves_what_it_allows() -> None:
    spec = SampleSpec(temperature=0.0, allowed=allowed(2, 4))

    (drawn,) = sample(torch.tensor([LOGITS]), [spec])

    assert drawn.token_id == 2
    assert adjusted(spec) == [-math.inf, -math.inf, 0.5, -math.inf, -2.0]


def test_where_nothing_is_allowed_nothing_is_drawn() -> None:
    spec = SampleSpec(banned_ids=(2, 4), allowed=allowed(2, 4))

    with pytest.raises(NothingAllowed):
        sample(torch.tensor([LOGITS]), [spec])


def test_logprobs_are_taken_before_temperature_and_after_adjustments() -> None:
    spec = SampleSpec(temperature=0.3, top_k=1, logit_bias=((3, 4.0),), banned_ids=(0,), logprobs=3)

    (drawn,) = sample(torch.tensor([LOGITS]), [spec])

    weights = [0.0, math.exp(1.0), math.exp(0.5), math.exp(3.0), math.exp(-2.0)]
    expected = [math.log(w / sum(weights)) if w else -math.inf for w in weights]
    assert drawn.token_id == 3
    assert drawn.logprob is not None
    assert drawn.logprob.logprob == pytest.approx(expected[3], abs=1e-5)
    assert [token_id for token_id, _ in drawn.logprob.top] == [3, 1, 2]
    assert [value for _, value in drawn.logprob.top] == pytest.approx(
        [expected[3], expected[1], expected[2]], abs=1e-5
    )


def test_under_a_mask_the_excluded_are_infinitely_unlikely() -> None:
    (drawn,) = sample(
        torch.tensor([LOGITS]), [SampleSpec(temperature=0.0, allowed=allowed(2), logprobs=2)]
    )

    assert drawn.logprob is not None
    assert drawn.logprob.top[0] == (2, 0.0)
    assert drawn.logprob.top[1][1] == -math.inf


def test_logprobs_without_alternatives() -> None:
    (drawn,) = sample(torch.tensor([[0.0, 0.0]]), [SampleSpec(temperature=0.0, logprobs=0)])

    assert drawn.logprob is not None
    assert drawn.logprob.top == ()
    assert drawn.logprob.logprob == pytest.approx(math.log(0.5))


def test_min_p_keeps_what_is_near_the_best() -> None:
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log()

    def ids(min_p: float, top_p: float = 1.0) -> list[int]:
        mask = kept(scores, top_p=top_p, top_k=0, min_p=min_p)
        return [0, 1, 2, 3] if mask is None else mask.nonzero().flatten().tolist()

    assert ids(0.0) == [0, 1, 2, 3]
    assert ids(0.25) == [0, 1, 2]
    assert ids(1.0) == [0]
    assert ids(0.25, top_p=0.6) == [0, 1]


@given(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=2, max_size=6))
def test_a_row_is_drawn_as_if_it_were_alone(kinds: list[int]) -> None:
    specs = [
        [
            SampleSpec(temperature=0.0, logprobs=1),
            SampleSpec(seed=5, position=3, presence_penalty=1.0, output_ids=(0, 1)),
            SampleSpec(seed=6, choice=1, top_p=0.9, logit_bias=((2, 1.5),), logprobs=0),
            SampleSpec(seed=7, min_p=0.05, allowed=allowed(1, 2, 3)),
        ][kind]
        for kind in kinds
    ]
    rows = torch.tensor([LOGITS]).expand(len(kinds), -1)

    together = sample(rows.clone(), specs)

    assert together == [sample(torch.tensor([LOGITS]), [spec])[0] for spec in specs]
