"""The two GPU programs of paged attention: attend over a split of keys, combine the splits.

A program computes a tile of one sequence's queries for one KV head; the query heads that share that
head are rows of the same tile, so keys are read once for all of them. Launched by
`paged_attention_triton` only; they hold no shape that a launch does not pass.
"""

import triton
import triton.language as tl

from kernels.float8 import FLOAT8_DECODED_SCALE, decode_float8


@triton.jit(do_not_specialize=["table_stride"])  # type: ignore[untyped-decorator]  # no types
def paged_attention_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    query,
    key_pool,
    value_pool,
    key_scales,
    value_scales,
    output,
    partials,
    log_sums,
    query_starts,
    context_lengths,
    block_tables,
    tile_sequences,
    tile_offsets,
    split_tokens,
    scale_log2,
    query_token_stride,
    query_head_stride,
    pool_head_stride,
    pool_block_stride,
    scales_head_stride,
    table_stride,
    sharing: tl.constexpr,
    head_size: tl.constexpr,
    block_tokens: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    round_keys: tl.constexpr,
    value_type: tl.constexpr,
    split: tl.constexpr,
):
    """Flash attention (Dao 2023) over keys found through a block table, in base-2 exponentials.

    Where the pool is quantized, `key_scales` multiply the scores and `value_scales` the weights:
    no dequantized tile is ever made. With `split`, part z of the keys goes to `partials`
    [tiles, kv_heads, splits, rows, head_size] and `log_sums` without the last dimension, both
    float32, for `combine_splits_kernel`; otherwise the result goes to `output`. A sequence
    without context (padding) yields zeros.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tl.load(tile_sequences + tile)
    offset = tl.load(tile_offsets + tile)
    start, queries, context = _lengths(query_starts, context_lengths, sequence)
    last_key = tl.minimum(context, context - queries + offset + tile_tokens)
    first_key = 0
    if split:
        length = tl.load(split_tokens)
        first_key = tl.program_id(2) * length
        last_key = tl.minimum(last_key, first_key + length)
        if first_key >= last_key:
            return

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
    pool_head = kv_head.to(tl.int64) * pool_head_stride

    row_max = tl.full([tile_rows], float("-inf"), tl.float32)
    row_sum = tl.zeros([tile_rows], tl.float32)
    weighted = tl.zeros([tile_rows, head_size], tl.float32)
    for first in range(first_key, last_key, round_keys):
        keys = first + tl.arange(0, round_keys)
        is_key = keys < last_key
        blocks = tl.load(
            block_tables + sequence * table_stride + keys // block_tokens, mask=is_key, other=0
        ).to(tl.int64)
        key_rows = pool_head + blocks * pool_block_stride + (keys % block_tokens) * head_size
        places = key_rows[:, None] + sizes[None, :]
        tile_keys = tl.load(key_pool + places, mask=is_key[:, None], other=0.0)
        tile_values = tl.load(value_pool + places, mask=is_key[:, None], other=0.0)
        scores = tl.dot(
            tile_query, tl.trans(_operand(tile_keys, tile_query.dtype)), input_precision="ieee"
        )
        if key_scales is not None:
            scale_places = (
                kv_head * scales_head_stride + blocks * block_tokens + keys % block_tokens
            )
            scores *= _scales(key_scales, scale_places, is_key, tile_keys.dtype)[None, :]
        sees = is_key[None, :] & (keys[None, :] <= positions[:, None])
        scores = tl.where(sees, scores * scale_log2, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # A row that has seen no key yet, in a split that begins after it, would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(scores - shift[:, None])
        shrink = tl.exp2(row_max - shift)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        if value_scales is not None:
            weights *= _scales(value_scales, scale_places, is_key, tile_values.dtype)[None, :]
        weighted = weighted * shrink[:, None] + tl.dot(
            weights.to(value_type), _operand(tile_values, value_type), input_precision="ieee"
        )
        row_max = new_max

    weighted = weighted / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    kv_heads = tl.num_programs(1)
    if split:
        part = (tile * kv_heads + kv_head) * tl.num_programs(2) + tl.program_id(2)
        partial_rows = part * tile_rows + rows
        tl.store(
            partials + partial_rows[:, None] * head_size + sizes[None, :],
            weighted,
            mask=is_query[:, None],
        )
        log_sum = row_max + tl.log2(tl.where(row_sum == 0.0, 1.0, row_sum))
        tl.store(log_sums + partial_rows, log_sum, mask=is_query)
    else:
        # The output has the queries' shape but not their strides: it is contiguous.
        output_rows = ((start + tokens).to(tl.int64) * kv_heads * sharing + heads) * head_size
        tl.store(
            output + output_rows[:, None] + sizes[None, :],
            weighted.to(output.dtype.element_ty),
            mask=is_query[:, None],
        )


@triton.jit(do_not_specialize=["splits"])  # type: ignore[untyped-decorator]  # no types
def combine_splits_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    partials,
    log_sums,
    output,
    query_starts,
    context_lengths,
    tile_sequences,
    tile_offsets,
    split_tokens,
    splits,
    sharing: tl.constexpr,
    head_size: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    splits_padded: tl.constexpr,
):
    """Sums the parts of one row, each weighted by its share of the softmax (Flash-Decoding, 2023).

    One program per tile, KV head and row; `splits_padded` is a power of two from `splits` on. Reads
    only the parts that had keys: the others were never written.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.program_id(2)
    sequence = tl.load(tile_sequences + tile)
    offset = tl.load(tile_offsets + tile)
    start, queries, context = _lengths(query_starts, context_lengths, sequence)
    token = offset + row // sharing
    if token >= queries:
        return
    last_key = tl.minimum(context, context - queries + offset + tile_tokens)

    parts = tl.arange(0, splits_padded)
    sizes = tl.arange(0, head_size)
    is_part = (parts < splits) & (parts * tl.load(split_tokens) < last_key)
    kv_heads = tl.num_programs(1)
    partial_rows = ((tile * kv_heads + kv_head) * splits + parts) * tile_rows + row
    log_sum = tl.load(log_sums + partial_rows, mask=is_part, other=float("-inf"))
    largest = tl.max(log_sum, 0)
    shares = tl.exp2(log_sum - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(shares, 0)
    weighted = tl.load(
        partials + partial_rows[:, None] * head_size + sizes[None, :],
        mask=is_part[:, None],
        other=0.0,
    )
    combined = tl.sum(weighted * shares[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    head = kv_head * sharing + row % sharing
    output_row = ((start + token).to(tl.int64) * kv_heads * sharing + head) * head_size
    tl.store(output + output_row + sizes, combined.to(output.dtype.element_ty))


@triton.jit
def _lengths(query_starts, context_lengths, sequence):  # type: ignore[no-untyped-def]
    """(row of its first query, its queries, its context) of one sequence."""
    start = tl.load(query_starts + sequence)
    queries = tl.load(query_starts + sequence + 1) - start
    return start, queries, tl.load(context_lengths + sequence)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _operand(stored, element_type: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile as a tensor core takes it; uint8 is float8 on a card that does not know it."""
    if stored.dtype == tl.uint8:
        return decode_float8(stored).to(element_type)
    return stored.to(element_type)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _scales(scales, places, mask, stored_type: tl.constexpr):  # type: ignore[no-untyped-def]
    loaded = tl.load(scales + places, mask=mask, other=0.0)
    if stored_type == tl.uint8:
        return loaded * FLOAT8_DECODED_SCALE
    return loaded
