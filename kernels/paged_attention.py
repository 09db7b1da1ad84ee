"""Attention over a paged KV pool: what every implementation computes, and the plain reference.

Queries of any length per sequence, so prefill, decode and everything between are one operation.
The reference is the oracle of the tests and nothing else calls it: the runner takes the Triton
kernel on CUDA and the batched path on CPU, both through `Attend`.

A pool is [kv_heads, blocks, block_tokens, head_size]: with heads outermost, gathering the blocks
of many sequences yields their keys contiguous per head, ready for one batched product.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.kv_layer import KvLayer

Attend = Callable[[torch.Tensor, KvLayer], torch.Tensor]
"""(query [tokens, heads, head_size], one layer's KV) -> [tokens, heads, head_size]."""


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Which tokens of a step belong to which sequence, and where each sequence's KV lies.

    The queries of sequence s are rows query_starts[s] .. query_starts[s + 1] - 1 and stand at the
    last positions of its context of context_lengths[s] tokens, themselves included. Position p lies
    in block block_tables[s][p // block_tokens]. All int32; tables are padded with valid block ids.
    """

    query_starts: torch.Tensor
    context_lengths: torch.Tensor
    block_tables: torch.Tensor


def check_attention_shapes(
    query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor, batch: AttentionBatch
) -> None:
    """Raises ValueError unless the shapes fit each other. Reads no tensor's values."""
    if query.dim() != 3 or key_pool.dim() != 4:
        raise ValueError(
            "query must be [tokens, heads, size], pools [kv_heads, blocks, tokens, size]"
        )
    if key_pool.shape != value_pool.shape:
        raise ValueError(f"key pool {key_pool.shape} and value pool {value_pool.shape} differ")
    if query.shape[2] != key_pool.shape[3] or query.shape[1] % key_pool.shape[0]:
        raise ValueError(f"query {query.shape} does not fit the pool {key_pool.shape}")
    sequences = batch.context_lengths.shape[0]
    if batch.query_starts.shape != (sequences + 1,) or batch.block_tables.shape[0] != sequences:
        raise ValueError("query starts and block tables must match the context lengths")
    for name in AttentionBatch.__slots__:
        if getattr(batch, name).dtype != torch.int32:
            raise ValueError(f"{name} must be int32")


def paged_attention_reference(
    query: torch.Tensor, key_pool: torch.Tensor, value_pool: torch.Tensor, batch: AttentionBatch
) -> torch.Tensor:
    """Softmax attention scaled by 1/sqrt(head_size), one sequence and one head at a time."""
    check_attention_shapes(query, key_pool, value_pool, batch)
    _, heads, head_size = query.shape
    kv_heads, _, block_tokens, _ = key_pool.shape
    output = query.new_empty(query.shape)
    for sequence, context in enumerate(batch.context_lengths.tolist()):
        first, last = batch.query_starts[sequence : sequence + 2].tolist()
        blocks = batch.block_tables[sequence, : math.ceil(context / block_tokens)].long()
        query_positions = torch.arange(context - (last - first), context, device=query.device)
        visible = torch.arange(context, device=query.device) <= query_positions[:, None]
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            keys = key_pool[kv_head, blocks].reshape(-1, head_size)[:context]
            values = value_pool[kv_head, blocks].reshape(-1, head_size)[:context]
            scores = query[first:last, head] @ keys.T / math.sqrt(head_size)
            weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
            output[first:last, head] = weights @ values
    return output
