"""Paged attention on GPU: one Triton kernel for prefill, decode and every mixture of them.

A program computes a tile of one sequence's queries for one KV head; the query heads that share that
head are rows of the same tile, so keys are read once for all of them. Checked against the reference
in Triton's interpreter and compiled to sm_90 in the tests; the runner calls it on CUDA.
"""

import itertools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.paged_attention import Attend, AttentionBatch, check_attention_shapes

HEAD_SIZES = (16, 32, 64, 128)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def paged_attention_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    query,
    key_pool,
    value_pool,
    output,
    query_starts,
    context_lengths,
    block_tables,
    tile_sequences,
    tile_offsets,
    scale_log2,
    query_token_stride,
    query_head_stride,
    pool_head_stride,
    pool_block_stride,
    table_stride,
    sharing: tl.constexpr,
    head_size: tl.constexpr,
    block_tokens: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    round_keys: tl.constexpr,
):
    """Flash attention (Dao 2023) over keys found through a block table, in base-2 exponentials."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tl.load(tile_sequences + tile)
    offset = tl.load(tile_offsets + tile)
    start = tl.load(query_starts + sequence)
    queries = tl.load(query_starts + sequence + 1) - start
    context = tl.load(context_lengths + sequence)

    rows = tl.arange(0, tile_rows)
    sizes = tl.arange(0, head_size)
    tokens = offset + rows // sharing
    heads = kv_head * sharing + rows % sharing
    is_query = (rows < tile_tokens * sharing) & (tokens < queries)
    query_rows = (start + tokens).to(tl.int64) * query_token_stride + heads * query_head_stride
    tile_query = tl.load(
        query + query_rows[:, None] + sizes[None, :], mask=is_query[:, None], other=0.0
    )
    positions = context - queries + tokens
    visible_keys = tl.minimum(context, context - queries + offset + tile_tokens)

    # Every row sees at least key 0, in the first round: the maximum is finite from then on.
    row_max = tl.full([tile_rows], float("-inf"), tl.float32)
    row_sum = tl.zeros([tile_rows], tl.float32)
    weighted = tl.zeros([tile_rows, head_size], tl.float32)
    for first in range(0, visible_keys, round_keys):
        keys = first + tl.arange(0, round_keys)
        is_key = keys < visible_keys
        blocks = tl.load(
            block_tables + sequence * table_stride + keys // block_tokens, mask=is_key, other=0
        )
        key_rows = (
            kv_head * pool_head_stride
            + blocks.to(tl.int64) * pool_block_stride
            + (keys % block_tokens) * head_size
        )
        places = key_rows[:, None] + sizes[None, :]
        tile_keys = tl.load(key_pool + places, mask=is_key[:, None], other=0.0)
        tile_values = tl.load(value_pool + places, mask=is_key[:, None], other=0.0)
        scores = tl.dot(tile_query, tl.trans(tile_keys), input_precision="ieee") * scale_log2
        sees = is_key[None, :] & (keys[None, :] <= positions[:, None])
        scores = tl.where(sees, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        weights = tl.exp2(scores - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        weighted = weighted * shrink[:, None] + tl.dot(
            weights.to(tile_values.dtype), tile_values, input_precision="ieee"
        )
        row_max = new_max

    # The output has the queries' shape but not their strides: it is contiguous.
    output_heads = tl.num_programs(1) * sharing
    output_rows = ((start + tokens).to(tl.int64) * output_heads + heads) * head_size
    tl.store(
        output + output_rows[:, None] + sizes[None, :],
        (weighted / row_sum[:, None]).to(output.dtype.element_ty),
        mask=is_query[:, None],
    )


@dataclass(frozen=True, slots=True)
class TileShape:
    """How the kernel cuts its work: `tokens` queries of one sequence, `keys` read per round.

    `rows` is tokens * sharing rounded up to a power of two, at least the 16 of a tensor-core tile.
    """

    tokens: int
    rows: int
    keys: int
    warps: int


def tile_shape(sharing: int, query_tokens_max: int) -> TileShape:
    """The shape for a step whose longest sequence share has `query_tokens_max` tokens.

    Chosen as the widest that spill no register on sm_90 in float32 with heads of 128.
    """
    rows = max(16, _power_of_two_from(sharing))
    if query_tokens_max == 1:
        return TileShape(tokens=1, rows=rows, keys=32, warps=4)
    rows = max(64, rows)
    return TileShape(tokens=rows // sharing, rows=rows, keys=16, warps=8)


def plan_triton_attention(batch: AttentionBatch, device: torch.device) -> Attend:
    """Cuts a step into tiles once; the result launches the kernel for each layer.

    `batch` is on the CPU, where its values are looked at without waiting for the device.
    """
    starts = batch.query_starts.tolist()
    counts = [last - first for first, last in itertools.pairwise(starts)]
    on_device = AttentionBatch(
        batch.query_starts.to(device),
        batch.context_lengths.to(device),
        batch.block_tables.contiguous().to(device),
    )
    tiles: dict[int, tuple[TileShape, torch.Tensor, torch.Tensor]] = {}

    def attend(
        query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor
    ) -> torch.Tensor:
        check_attention_shapes(query, key_pool, value_pool, on_device)
        _check_layout(query, key_pool, value_pool)
        _, heads, head_size = query.shape
        sharing = heads // key_pool.shape[0]
        if sharing not in tiles:
            tiles[sharing] = _tiles(counts, tile_shape(sharing, max(counts)), device)
        shape, sequences, offsets = tiles[sharing]
        output = query.new_empty(query.shape)
        paged_attention_kernel[(sequences.shape[0], key_pool.shape[0])](
            query,
            key_pool,
            value_pool,
            output,
            on_device.query_starts,
            on_device.context_lengths,
            on_device.block_tables,
            sequences,
            offsets,
            math.log2(math.e) / math.sqrt(head_size),
            query.stride(0),
            query.stride(1),
            key_pool.stride(0),
            key_pool.stride(1),
            on_device.block_tables.stride(0),
            sharing=sharing,
            head_size=head_size,
            block_tokens=key_pool.shape[2],
            tile_tokens=shape.tokens,
            tile_rows=shape.rows,
            round_keys=shape.keys,
            num_warps=shape.warps,
        )
        return output

    return attend


def _tiles(
    counts: list[int], shape: TileShape, device: torch.device
) -> tuple[TileShape, torch.Tensor, torch.Tensor]:
    places = [
        (sequence, offset)
        for sequence, count in enumerate(counts)
        for offset in range(0, count, shape.tokens)
    ]
    sequences, offsets = torch.tensor(places, dtype=torch.int32).T.contiguous().to(device)
    return shape, sequences, offsets


def _check_layout(query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor) -> None:
    head_size = query.shape[2]
    if head_size not in HEAD_SIZES:
        raise ValueError(f"head size {head_size} is not one of {HEAD_SIZES}")
    if query.stride(2) != 1 or key_pool.stride() != value_pool.stride():
        raise ValueError("heads must be contiguous and both pools laid out alike")
    if key_pool.stride()[2:] != (head_size, 1):
        raise ValueError("the tokens of a block must be contiguous")


def _power_of_two_from(count: int) -> int:
    return 1 << (count - 1).bit_length()
