"""Steps to check attention on: seeded pools, scattered blocks and ragged sequences."""

from dataclasses import dataclass

import torch

from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.paged_attention import AttentionBatch
from kernels.rotary import quantized

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PagedCase:
    """A step: `lengths` are (queries, context) per sequence."""

    name: str
    lengths: tuple[tuple[int, int], ...]
    heads: int = 9
    kv_heads: int = 3
    head_size: int = 64


DECODES = ((1, 3), (1, 128), (1, 17), (1, 64))
MIXED = ((1, 100), (30, 30), (1, 5), (9, 60), (1, 16))
CASES = (
    PagedCase("one_decode", ((1, 40),)),
    PagedCase("first_token_ever", ((1, 1),)),
    PagedCase("whole_prompt", ((37, 37),)),
    PagedCase("resumed_chunk", ((21, 90),)),
    PagedCase("chunk_ending_on_a_block", ((16, 64),)),
    PagedCase("one_token_into_a_block", ((1, 49),)),
    PagedCase("decode_of_unequal_lengths", DECODES),
    PagedCase("mixed", MIXED),
    PagedCase("no_sharing", ((5, 20), (1, 33)), heads=2, kv_heads=2, head_size=16),
    PagedCase("one_kv_head", ((7, 23), (1, 33)), heads=8, kv_heads=1, head_size=32),
    PagedCase("wide_heads", ((3, 40), (1, 20)), heads=8, kv_heads=2, head_size=128),
)


def paged_step(
    case: PagedCase,
    dtype: torch.dtype = torch.float32,
    stored_type: torch.dtype | None = None,
) -> tuple[torch.Tensor, KvLayer, AttentionBatch]:
    """(query in `dtype`, layer in `stored_type` or the same, batch) of one case.

    Block ids are shuffled; keys and values of different tokens differ in size tenfold.
    """
    generator = torch.Generator().manual_seed(len(case.name))
    block_counts = [-(-context // BLOCK_TOKENS) for _, context in case.lengths]
    blocks = sum(block_counts) + 3
    order = torch.randperm(blocks, generator=generator).tolist()
    tables = [[order.pop() for _ in range(count)] for count in block_counts]
    widest = max(block_counts)
    starts = [0]
    for queries, _ in case.lengths:
        starts.append(starts[-1] + queries)
    pool_shape = (case.kv_heads, blocks, BLOCK_TOKENS, case.head_size)
    query = torch.randn((starts[-1], case.heads, case.head_size), generator=generator)
    keys, values = (
        torch.randn(pool_shape, generator=generator)
        * 10 ** (torch.rand(pool_shape[:3], generator=generator) - 0.8)[..., None]
        for _ in range(2)
    )
    batch = AttentionBatch(
        query_starts=torch.tensor(starts, dtype=torch.int32),
        context_lengths=torch.tensor([context for _, context in case.lengths], dtype=torch.int32),
        block_tables=torch.tensor(
            [table + [table[-1]] * (widest - len(table)) for table in tables], dtype=torch.int32
        ),
    )
    return query.to(dtype), layer_of(keys, values, stored_type or dtype), batch


def layer_of(keys: torch.Tensor, values: torch.Tensor, stored_type: torch.dtype) -> KvLayer:
    """Float32 pools as a layer that stores them in some format."""
    if stored_type not in STORED_MAX:
        return KvLayer(keys.to(stored_type), values.to(stored_type))
    stored_keys, key_scales = quantized(keys, stored_type)
    stored_values, value_scales = quantized(values, stored_type)
    return KvLayer(stored_keys, stored_values, key_scales, value_scales)
