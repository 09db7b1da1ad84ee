"""The CPU's attention computes what the reference does, whatever lies beyond a context."""

import math

import pytest
import torch

from kernels.kv_layer import KvLayer
from kernels.paged_attention import paged_attention_reference
from kernels.paged_attention_cpu import plan_cpu_attention
from tests.kernels.paged_cases import BLOCK_TOKENS, CASES, PagedCase, paged_step

ERROR_MAX = 2e-6


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cpu_path_agrees_with_the_reference(case: PagedCase) -> None:
    query, layer, batch = paged_step(case)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    expected = paged_attention_reference(query, layer, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def test_very_unequal_decodes_agree_with_the_reference() -> None:
    case = PagedCase("unequal", ((1, 1), (1, 900), (1, 15), (1, 350), (1, 16), (1, 17)))
    query, layer, batch = paged_step(case)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    expected = paged_attention_reference(query, layer, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def test_one_plan_serves_every_layer() -> None:
    query, layer, batch = paged_step(PagedCase("layers", ((1, 30), (6, 40))))
    swapped = KvLayer(layer.values, layer.keys)
    attend = plan_cpu_attention(batch, BLOCK_TOKENS)
    first = attend(query, layer)

    second = attend(query, swapped)

    for attended, kv in ((first, layer), (second, swapped)):
        assert torch.allclose(attended, paged_attention_reference(query, kv, batch), atol=ERROR_MAX)


def test_what_lies_beyond_a_context_is_never_seen() -> None:
    case = PagedCase("beyond", ((1, 20), (5, 10)))
    query, layer, batch = paged_step(case)
    expected = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)
    poisoned = KvLayer(layer.keys.clone(), layer.values.clone())
    for sequence, (_, context) in enumerate(case.lengths):
        last_block = int(batch.block_tables[sequence, (context - 1) // BLOCK_TOKENS])
        for pool in (poisoned.keys, poisoned.values):
            pool[:, last_block, context % BLOCK_TOKENS :] = 1e6

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, poisoned)

    assert torch.equal(attended, expected)


def test_sharp_scores_do_not_overflow() -> None:
    query, layer, batch = paged_step(PagedCase("sharp", ((1, 50), (4, 20))))

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query * 1e4, layer)

    assert math.isfinite(float(attended.abs().sum()))
