"""The CPU's attention computes what the reference does, whatever lies beyond a context."""

import math

import pytest
import torch

from kernels.kv_layer import KvLayer
from kernels.paged_attention import AttentionBatch, paged_attention_reference
from kernels.paged_attention_cpu import plan_cpu_attention
from kernels.paged_attention_groups import FEW_QUERIES_MAX, SHARED_SAVING_TOKENS_MIN
from tests.kernels.paged_cases import BLOCK_TOKENS, CASES, PagedCase, paged_step

ERROR_MAX = 2e-6


STORED_TYPES = (torch.float32, torch.int8)


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cpu_path_agrees_with_the_reference(case: PagedCase, stored_type: torch.dtype) -> None:
    query, layer, batch = paged_step(case, stored_type=stored_type)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    expected = paged_attention_reference(query, layer, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
@pytest.mark.parametrize(
    "lengths",
    [
        ((1, 1), (1, 900), (1, 15), (1, 350), (1, 16), (1, 17)),
        tuple((1, 300 + index) for index in range(12)),
    ],
    ids=["very unequal", "more than a group takes"],
)
def test_many_decodes_agree_with_the_reference(
    lengths: tuple[tuple[int, int], ...], stored_type: torch.dtype
) -> None:
    query, layer, batch = paged_step(PagedCase("many", lengths), stored_type=stored_type)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    expected = paged_attention_reference(query, layer, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def _sharing(batch: AttentionBatch, sharers: range, blocks: int) -> AttentionBatch:
    """The same step, but that these sequences begin with the blocks of the first of them."""
    tables = batch.block_tables.clone()
    tables[list(sharers), :blocks] = batch.block_tables[sharers.start, :blocks]
    return AttentionBatch(batch.query_starts, batch.context_lengths, tables)


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
@pytest.mark.parametrize(
    ("lengths", "runs"),
    [
        (tuple((1, 601 + 7 * index) for index in range(30)), [(range(30), 37)]),
        (((1, 30), *((1, 400 + 9 * index) for index in range(9))), [(range(1, 10), 20)]),
        # Five begin with 40 blocks, all ten with 30: by the saving, one run of ten.
        (tuple((1, 700) for _ in range(10)), [(range(10), 30), (range(5), 40)]),
        # Two of them share more than it would save to go with the others.
        (tuple((1, 900) for _ in range(6)), [(range(6), 9), (range(2), 50), (range(2, 6), 50)]),
        (((1, 641), (1, 640), (1, 656), (1, 1000), (40, 700)), [(range(5), 39)]),
        # One's last token completes the last block that they share: it is its own until then.
        (tuple((1, 640) for _ in range(8)), [(range(8), 40)]),
    ],
    ids=["more than a group", "others beside", "nested", "two runs", "and a prompt", "to the edge"],
)
def test_blocks_that_many_begin_with_are_read_once(
    lengths: tuple[tuple[int, int], ...],
    runs: list[tuple[range, int]],
    stored_type: torch.dtype,
) -> None:
    query, layer, batch = paged_step(PagedCase("alike", lengths), stored_type=stored_type)
    for sharers, blocks in runs:
        batch = _sharing(batch, sharers, blocks)

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    expected = paged_attention_reference(query, layer, batch)
    assert torch.allclose(attended, expected, atol=ERROR_MAX)


def test_alone_to_the_bit_while_sharing_saves_little_or_when_asked() -> None:
    query, layer, batch = paged_step(PagedCase("few", tuple((1, 500 + i) for i in range(6))))
    little, much = (_sharing(batch, range(6), blocks) for blocks in (25, 30))
    for_itself = plan_cpu_attention(much, BLOCK_TOKENS, invariant=True)(query, layer)
    assert SHARED_SAVING_TOKENS_MIN in range(5 * 25 * BLOCK_TOKENS, 5 * 30 * BLOCK_TOKENS)

    for shared, attended in (
        (little, plan_cpu_attention(little, BLOCK_TOKENS)(query, layer)),
        (much, for_itself),
    ):
        apart = [
            plan_cpu_attention(
                AttentionBatch(
                    torch.tensor([0, 1], dtype=torch.int32),
                    shared.context_lengths[row : row + 1],
                    shared.block_tables[row : row + 1],
                ),
                BLOCK_TOKENS,
            )(query[row : row + 1], layer)
            for row in range(6)
        ]
        assert torch.equal(torch.cat(apart), attended)


def test_one_plan_serves_every_layer() -> None:
    query, layer, batch = paged_step(PagedCase("layers", ((1, 30), (6, 40))))
    swapped = KvLayer(layer.values, layer.keys)
    attend = plan_cpu_attention(batch, BLOCK_TOKENS)
    first = attend(query, layer)

    second = attend(query, swapped)

    for attended, kv in ((first, layer), (second, swapped)):
        assert torch.allclose(attended, paged_attention_reference(query, kv, batch), atol=ERROR_MAX)


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
def test_what_lies_beyond_a_context_is_never_seen(stored_type: torch.dtype) -> None:
    case = PagedCase("beyond", ((1, 20), (5, 10), (7, 7)))
    query, layer, batch = paged_step(case, stored_type=stored_type)
    expected = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)
    poisoned = KvLayer(
        layer.keys.clone(),
        layer.values.clone(),
        None if layer.key_scales is None else layer.key_scales.clone(),
        None if layer.value_scales is None else layer.value_scales.clone(),
    )
    for sequence, (_, context) in enumerate(case.lengths):
        last_block = int(batch.block_tables[sequence, (context - 1) // BLOCK_TOKENS])
        numbers = (poisoned.keys, poisoned.values)
        scales = (poisoned.key_scales, poisoned.value_scales)
        for pool in (each for each in (numbers if None in scales else scales) if each is not None):
            pool[:, last_block, context % BLOCK_TOKENS :] = 1e6

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query, poisoned)

    assert torch.equal(attended, expected)


def test_sharp_scores_do_not_overflow() -> None:
    query, layer, batch = paged_step(PagedCase("sharp", ((1, 50), (4, 20))))

    attended = plan_cpu_attention(batch, BLOCK_TOKENS)(query * 1e4, layer)

    assert math.isfinite(float(attended.abs().sum()))


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
def test_a_decode_is_bit_for_bit_the_same_in_any_company(stored_type: torch.dtype) -> None:
    case = PagedCase("company", tuple((1, context) for context in (40, 3, 77, 48, 64, 33)))
    query, layer, batch = paged_step(case, stored_type=stored_type)
    together = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    alone = [
        plan_cpu_attention(
            AttentionBatch(
                torch.tensor([0, 1], dtype=torch.int32),
                batch.context_lengths[row : row + 1],
                batch.block_tables[row : row + 1],
            ),
            BLOCK_TOKENS,
        )(query[row : row + 1], layer)
        for row in range(len(case.lengths))
    ]

    assert torch.equal(torch.cat(alone), together)


@pytest.mark.parametrize("stored_type", STORED_TYPES, ids=str)
def test_drafts_are_checked_by_the_bits_of_decoding_one_by_one(stored_type: torch.dtype) -> None:
    case = PagedCase("drafts", ((5, 40), (8, 500), (2, 17), (3, 16), (FEW_QUERIES_MAX, 90)))
    query, layer, batch = paged_step(case, stored_type=stored_type)
    together = plan_cpu_attention(batch, BLOCK_TOKENS)(query, layer)

    starts = batch.query_starts.tolist()
    one_by_one = []
    for sequence, (queries, context) in enumerate(case.lengths):
        for ahead in range(queries):
            row = starts[sequence] + ahead
            alone = AttentionBatch(
                torch.tensor([0, 1], dtype=torch.int32),
                torch.tensor([context - queries + 1 + ahead], dtype=torch.int32),
                batch.block_tables[sequence : sequence + 1],
            )
            attend = plan_cpu_attention(alone, BLOCK_TOKENS)
            one_by_one.append(attend(query[row : row + 1], layer))

    assert torch.equal(torch.cat(one_by_one), together)
