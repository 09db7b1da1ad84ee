"""The runner for CUDA draws what the runner for the CPU draws, as far as a CPU can tell.

Its kernels are interpreted and its graphs are run again instead of replayed; `CudaDevice` itself
needs a GPU.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.computing.cuda_device import ALIGNMENT, Array, Download, uploaded
from inference.engine.computing.cuda_graphs import GRAPH_ROWS_MAX, bucket_sizes
from inference.engine.computing.device_sampling import edit_arrays, mask_arrays
from inference.engine.computing.sampler import adjust
from inference.engine.step import SampleSpec
from kernels.token_sampling import TokenEdits, TokenMasks, adjust_logits_reference
from tests.inference.engine.computing.host_device import HostDevice
from tests.kernels.interpreted import interpreted

VOCABULARY = 40
APART_MAX = {"bfloat16": 0.25, "int8": 0.25, "float8": 0.8}
"""Between log probabilities that lie 10 apart; 0.13, 0.14 and 0.40 were found."""


@pytest.mark.long
def test_steps_and_draws_are_those_of_the_cpu() -> None:
    differences = interpreted("cuda_runner_interpreted", folder="tests.inference.engine.computing")

    assert {name: found for name, found in differences.items() if found} == {}
    assert len(differences) == 9 + 3 + 13 + 1


@pytest.mark.long
def test_bfloat16_stays_near_float32_over_each_format_of_kv() -> None:
    apart = interpreted("cuda_runner_half_interpreted", folder="tests.inference.engine.computing")

    assert {name for name, difference in apart.items() if difference > APART_MAX[name]} == set()
    assert set(apart) == set(APART_MAX)


@pytest.mark.parametrize(
    ("running_max", "sizes"),
    [
        (1, (1,)),
        (3, (1, 2, 4)),
        (5, (1, 2, 4, 8)),
        (17, (1, 2, 4, 8, 16, 24)),
        (24, (1, 2, 4, 8, 16, 24)),
    ],
)
def test_graphs_hold_as_many_as_may_run(running_max: int, sizes: tuple[int, ...]) -> None:
    assert bucket_sizes(running_max) == sizes


def test_no_graph_is_larger_than_the_limit() -> None:
    assert bucket_sizes(10_000)[-1] == GRAPH_ROWS_MAX


token_ids = st.integers(0, VOCABULARY - 1)
specs = st.builds(
    SampleSpec,
    presence_penalty=st.sampled_from([0.0, -0.5, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.75]),
    prompt_ids=st.lists(token_ids, max_size=9),
    output_ids=st.lists(token_ids, max_size=9),
    logit_bias=st.lists(
        st.tuples(token_ids, st.sampled_from([-100.0, -1.5, 3.25])),
        max_size=4,
        unique_by=lambda entry: entry[0],
    ).map(tuple),
    banned_ids=st.lists(token_ids, max_size=3).map(tuple),
    allowed=st.just(b"") | st.binary(min_size=8, max_size=8),
)


@given(st.lists(specs, min_size=1, max_size=4), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_merged_edits_and_masks_adjust_logits_as_the_sampler_does(
    rows: list[SampleSpec], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    expected = torch.randn(len(rows), VOCABULARY, generator=generator) * 4
    adjusted = expected.clone()
    for row, spec in enumerate(rows):
        adjust(expected[row], spec)

    edits, masks = edit_arrays(rows), mask_arrays(rows, VOCABULARY)
    adjust_logits_reference(
        adjusted,
        TokenEdits(*map(torch.from_numpy, edits)) if edits else None,
        TokenMasks(*map(torch.from_numpy, masks)) if masks else None,
    )

    assert torch.equal(adjusted.isinf(), expected.isinf())
    assert torch.allclose(adjusted, expected, atol=1e-5)


def test_a_token_is_edited_once_however_often_it_is_named() -> None:
    spec = SampleSpec(
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        prompt_ids=[3, 3, 8],
        output_ids=[3, 5, 3],
        logit_bias=((3, 1.5), (8, 2.0)),
        banned_ids=(8, 8, 9),
    )

    rows, ids, biases, repetitions, penalties = edit_arrays([SampleSpec(), spec])

    assert rows.tolist() == [1, 1, 1, 1]
    assert ids.tolist() == [3, 5, 8, 9]
    assert biases.tolist() == [1.5, 0.0, -math.inf, -math.inf]
    assert repetitions.tolist() == [2.0, 2.0, 2.0, 1.0]
    assert penalties.tolist() == [2.0, 1.0, 0.0, 0.0]


def test_arrays_go_up_and_down_unchanged_and_aligned() -> None:
    arrays: list[Array] = [
        np.arange(6, dtype=np.int64).reshape(2, 3) - 3,
        np.zeros(0, dtype=np.int32),
        np.array([1.5], dtype=np.float32),
        np.array([7, -8, 9], dtype=np.int32),
    ]

    tensors = uploaded(HostDevice(), arrays)
    returned = Download(HostDevice(), tensors).read()

    base = tensors[0].data_ptr()
    assert [(tensor.data_ptr() - base) % ALIGNMENT for tensor in tensors if tensor.numel()] == [
        0
    ] * 3
    for array, tensor in zip(arrays, returned, strict=True):
        assert tensor.numpy().dtype == array.dtype
        assert np.array_equal(tensor.numpy(), array)
