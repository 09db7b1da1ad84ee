"""Paged attention on CPU: gather whole blocks, then few large products.

Sequences with one query (decode) are computed together, padded to the longest of their group; one
with several queries is computed alone. Gathering per token costs 84 ms a step at 16 streams and
context 128 where this takes about 18. The runner makes one plan per step and uses it in each layer.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend, AttentionBatch, check_attention_shapes

PADDING_RATIO_MAX = 2
"""A decode group is split where padding would make a sequence read more than this many times."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences computed by one product.

    `rows` picks their queries, `blocks` [sequences * blocks each] their KV, `mask`
    [sequences, 1, queries, context] is 0 where a query may look and -inf elsewhere.
    """

    rows: slice | torch.Tensor
    sequences: int
    queries: int
    blocks: torch.Tensor
    mask: torch.Tensor


def plan_cpu_attention(batch: AttentionBatch, block_tokens: int) -> Attend:
    """Sorts a step's sequences into groups once; the result is called for each layer."""
    starts = batch.query_starts.tolist()
    contexts = batch.context_lengths.tolist()
    block_counts = [math.ceil(context / block_tokens) for context in contexts]
    single = [s for s in range(len(contexts)) if starts[s + 1] - starts[s] == 1]
    groups = [
        _decode_group(
            batch, members, [starts[s] for s in members], block_counts[longest], block_tokens
        )
        for longest, members in _similar_lengths(single, block_counts)
    ]
    groups += [
        _prefill_group(batch, s, starts[s], starts[s + 1], contexts[s], block_tokens)
        for s in range(len(contexts))
        if starts[s + 1] - starts[s] > 1
    ]
    buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(query: torch.Tensor, layer: KvLayer) -> torch.Tensor:
        key_pool, value_pool = layer.keys, layer.values
        check_attention_shapes(query, key_pool, value_pool, batch)
        output = query.new_empty(query.shape)
        for index, group in enumerate(groups):
            if index not in buffers:
                shape = (key_pool.shape[0], group.blocks.shape[0], *key_pool.shape[2:])
                buffers[index] = (key_pool.new_empty(shape), value_pool.new_empty(shape))
            keys, values = buffers[index]
            torch.index_select(key_pool, 1, group.blocks, out=keys)
            torch.index_select(value_pool, 1, group.blocks, out=values)
            output[group.rows] = _attend_group(query[group.rows], keys, values, group)
        return output

    return attend


def _attend_group(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: _Group
) -> torch.Tensor:
    rows, heads, head_size = query.shape
    kv_heads = keys.shape[0]
    sharing = heads // kv_heads
    sequences, queries = group.sequences, group.queries
    keys, values = (
        gathered.view(kv_heads, sequences, -1, head_size).transpose(0, 1)
        for gathered in (keys, values)
    )
    if queries == 1:
        # The query heads that share a KV head become the queries of one attention.
        grouped = query.view(sequences, kv_heads, sharing, head_size)
        attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.mask)
        return attended.reshape(rows, heads, head_size)
    # One sequence: KV heads stand in for the batch, and its keys serve each sharing head unmoved.
    split = query.view(queries, kv_heads, sharing, head_size).permute(1, 2, 0, 3)
    keys, values = (
        gathered[0][:, None].expand(kv_heads, sharing, -1, head_size) for gathered in (keys, values)
    )
    attended = scaled_dot_product_attention(split, keys, values, attn_mask=group.mask)
    return attended.permute(2, 0, 1, 3).reshape(rows, heads, head_size)


def _similar_lengths(sequences: list[int], block_counts: list[int]) -> list[tuple[int, list[int]]]:
    """(longest, members in ascending order) such that padding stays under PADDING_RATIO_MAX."""
    groups: list[tuple[int, list[int]]] = []
    for sequence in sorted(sequences, key=lambda s: -block_counts[s]):
        if groups and block_counts[groups[-1][0]] <= PADDING_RATIO_MAX * block_counts[sequence]:
            groups[-1][1].append(sequence)
        else:
            groups.append((sequence, [sequence]))
    return [(longest, sorted(members)) for longest, members in groups]


def _decode_group(
    batch: AttentionBatch, members: list[int], rows: list[int], blocks: int, block_tokens: int
) -> _Group:
    last_positions = batch.context_lengths[members] - 1
    return _Group(
        rows=_slice_if_adjacent(rows),
        sequences=len(members),
        queries=1,
        blocks=batch.block_tables[members, :blocks].flatten().long(),
        mask=_causal_mask(last_positions[:, None, None, None], blocks * block_tokens),
    )


def _prefill_group(
    batch: AttentionBatch, sequence: int, first: int, last: int, context: int, block_tokens: int
) -> _Group:
    blocks = math.ceil(context / block_tokens)
    positions = torch.arange(context - (last - first), context)
    return _Group(
        rows=slice(first, last),
        sequences=1,
        queries=last - first,
        blocks=batch.block_tables[sequence, :blocks].long(),
        mask=_causal_mask(positions[:, None], blocks * block_tokens),
    )


def _causal_mask(positions: torch.Tensor, width: int) -> torch.Tensor:
    """0 at the keys up to each position, -inf after it and over padding."""
    hidden = torch.arange(width) > positions
    return torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)


def _slice_if_adjacent(rows: list[int]) -> slice | torch.Tensor:
    """Rows in one run need no copy."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows)
