"""Every attention path computes what the reference does, and the reference what torch does."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.paged_attention import (
    AttentionBatch,
    check_attention_shapes,
    paged_attention_reference,
)
from kernels.paged_attention_cpu import plan_cpu_attention
from kernels.paged_attention_triton import plan_triton_attention
from tests.kernels.paged_cases import BLOCK_TOKENS, CASES, PagedCase, paged_step

REPOSITORY = Path(__file__).resolve().parents[2]
ERROR_MAX = 2e-6


@pytest.fixture(scope="module")
def interpreted_errors() -> dict[str, float]:
    """The Triton kernel's largest error per case."""
    output = subprocess.run(
        [sys.executable, "-m", "tests.kernels.triton_interpreted"],
        check=True,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    ).stdout
    errors: dict[str, float] = json.loads(output)
    return errors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_triton_kernel_agrees_with_the_reference(
    case: PagedCase, interpreted_errors: dict[str, float]
) -> None:
    assert interpreted_errors[case.name] < ERROR_MAX


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cpu_path_agrees_with_the_reference(case: PagedCase) -> None:
    query, keys, values, batch = paged_step(case)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, keys, values)

    expected = paged_attention_reference(query, keys, values, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def test_very_unequal_decodes_agree_with_the_reference() -> None:
    case = PagedCase("unequal", ((1, 1), (1, 900), (1, 15), (1, 350), (1, 16), (1, 17)))
    query, keys, values, batch = paged_step(case)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, keys, values)

    expected = paged_attention_reference(query, keys, values, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def test_one_plan_serves_every_layer() -> None:
    case = PagedCase("layers", ((1, 30), (6, 40)))
    query, keys, values, batch = paged_step(case)
    attend = plan_cpu_attention(batch, BLOCK_TOKENS)
    first = attend(query, keys, values)

    second = attend(query, values, keys)

    assert torch.allclose(first, paged_attention_reference(query, keys, values, batch), atol=2e-6)
    assert torch.allclose(second, paged_attention_reference(query, values, keys, batch), atol=2e-6)


def test_the_reference_is_causal_attention() -> None:
    query, keys, values, _ = paged_step(PagedCase("plain", ((32, 32),), heads=4, kv_heads=4))
    batch = AttentionBatch(
        query_starts=torch.tensor([0, 32], dtype=torch.int32),
        context_lengths=torch.tensor([32], dtype=torch.int32),
        block_tables=torch.tensor([[1, 0]], dtype=torch.int32),
    )

    attended = paged_attention_reference(query, keys, values, batch)

    flat_keys, flat_values = (pool[:, [1, 0]].flatten(1, 2) for pool in (keys, values))
    expected = scaled_dot_product_attention(
        query.transpose(0, 1), flat_keys, flat_values, is_causal=True
    )
    assert torch.allclose(attended, expected.transpose(0, 1), atol=ERROR_MAX)


def test_what_lies_beyond_a_context_is_never_seen() -> None:
    case = PagedCase("beyond", ((1, 20), (5, 10)))
    query, keys, values, batch = paged_step(case)
    expected = plan_cpu_attention(batch, BLOCK_TOKENS)(query, keys, values)
    poisoned_keys, poisoned_values = keys.clone(), values.clone()
    for sequence, (_, context) in enumerate(case.lengths):
        last_block = int(batch.block_tables[sequence, (context - 1) // BLOCK_TOKENS])
        poisoned_keys[:, last_block, context % BLOCK_TOKENS :] = 1e6
        poisoned_values[:, last_block, context % BLOCK_TOKENS :] = 1e6

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, poisoned_keys, poisoned_values)

    assert torch.equal(attended, expected)


def test_sharp_scores_do_not_overflow() -> None:
    query, keys, values, batch = paged_step(PagedCase("sharp", ((1, 50), (4, 20))))

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query * 1e4, keys, values)

    assert math.isfinite(float(attended.abs().sum()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": (4, 9)}, "query must be"),
        ({"query": (4, 9, 32)}, "does not fit the pool"),
        ({"query": (4, 10, 64)}, "does not fit the pool"),
        ({"value_pool": (3, 5, 16, 32)}, "differ"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    change: dict[str, tuple[int, ...]], message: str
) -> None:
    shapes = {"query": (4, 9, 64), "key_pool": (3, 5, 16, 64), "value_pool": (3, 5, 16, 64)}
    tensors = {name: torch.zeros(shape) for name, shape in (shapes | change).items()}
    batch = AttentionBatch(
        torch.tensor([0, 4], dtype=torch.int32),
        torch.tensor([4], dtype=torch.int32),
        torch.tensor([[0]], dtype=torch.int32),
    )

    with pytest.raises(ValueError, match=message):
        check_attention_shapes(**tensors, batch=batch)


def test_tables_of_another_type_or_length_are_refused() -> None:
    query, keys, values, batch = paged_step(PagedCase("types", ((1, 20), (5, 10))))
    wide = AttentionBatch(batch.query_starts, batch.context_lengths.long(), batch.block_tables)
    short = AttentionBatch(batch.query_starts[:-1], batch.context_lengths, batch.block_tables)

    with pytest.raises(ValueError, match="int32"):
        check_attention_shapes(query, keys, values, wide)
    with pytest.raises(ValueError, match="query starts"):
        check_attention_shapes(query, keys, values, short)


def test_layouts_the_triton_kernel_cannot_read_are_refused() -> None:
    odd = PagedCase("odd_size", ((1, 20),), head_size=48)
    usual = PagedCase("usual", ((1, 20),))
    query, keys, values, batch = paged_step(usual)
    scattered = keys.transpose(1, 2).contiguous().transpose(1, 2)
    odd_query, odd_keys, odd_values, odd_batch = paged_step(odd)

    with pytest.raises(ValueError, match="head size 48"):
        plan_triton_attention(odd_batch, torch.device("cpu"))(odd_query, odd_keys, odd_values)
    with pytest.raises(ValueError, match="laid out alike"):
        plan_triton_attention(batch, torch.device("cpu"))(query, scattered, values)
    with pytest.raises(ValueError, match="must be contiguous"):
        plan_triton_attention(batch, torch.device("cpu"))(query, scattered, scattered)
