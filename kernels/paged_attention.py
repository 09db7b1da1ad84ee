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

from kernels.kv_layer import STORED_MAX, KvLayer

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


def check_attention_shapes(query: torch.Tensor, layer: KvLayer, batch: AttentionBatch) -> None:
    """Raises ValueError unless the shapes and types fit each other. Reads no tensor's values."""
    keys, values = layer.keys, layer.values
    if query.dim() != 3 or keys.dim() != 4:
        raise ValueError(
            "query must be [tokens, heads, size], pools [kv_heads, blocks, tokens, size]"
        )
    if keys.shape != values.shape or keys.dtype != values.dtype:
        raise ValueError(f"key pool {keys.shape} and value pool {values.shape} differ")
    if query.shape[2] != layer.head_size or query.shape[1] % layer.kv_heads:
        raise ValueError(f"query {query.shape} does not fit the pool {keys.shape}")
    for scales in (layer.key_scales, layer.value_scales):
        if (scales is not None) != (keys.dtype in STORED_MAX):
            raise ValueError(f"a pool of {keys.dtype} has scales exactly if it is quantized")
        if scales is not None and (scales.shape != keys.shape[:3] or scales.dtype != torch.float32):
            raise ValueError(f"scales must be float32 of {tuple(keys.shape[:3])}")
    sequences = batch.context_lengths.shape[0]
    if batch.query_starts.shape != (sequences + 1,) or batch.block_tables.shape[0] != sequences:
        raise ValueError("query starts and block tables must match the context lengths")
    for name in AttentionBatch.__slots__:
        if getattr(batch, name).dtype != torch.int32:
            raise ValueError(f"{name} must be int32")


def paged_attention_reference(
    query: torch.Tensor, layer: KvLayer, batch: AttentionBatch
) -> torch.Tensor:
    """Softmax attention scaled by 1/sqrt(head_size), one sequence and one head at a time.

    Dequantizes and computes in float32, or in float64 for queries of that; the result has the
    queries' type.
    """
    check_attention_shapes(query, layer, batch)
    _, heads, head_size = query.shape
    sharing = heads // layer.kv_heads
    computed = torch.promote_types(query.dtype, torch.float32)
    output = query.new_empty(query.shape)
    for sequence, context in enumerate(batch.context_lengths.tolist()):
        first, last = batch.query_starts[sequence : sequence + 2].tolist()
        blocks = batch.block_tables[sequence, : math.ceil(context / layer.block_tokens)].long()
        query_positions = torch.arange(context - (last - first), context, device=query.device)
        visible = torch.arange(context, device=query.device) <= query_positions[:, None]
        for head in range(heads):
            keys, values = (
                _dequantized(pool, scales, head // sharing, blocks)[:context].to(computed)
                for pool, scales in (
                    (layer.keys, layer.key_scales),
                    (layer.values, layer.value_scales),
                )
            )
            scores = query[first:last, head].to(computed) @ keys.T / math.sqrt(head_size)
            weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
            output[first:last, head] = (weights @ values).to(query.dtype)
    return output


def _dequantized(
    pool: torch.Tensor, scales: torch.Tensor | None, kv_head: int, blocks: torch.Tensor
) -> torch.Tensor:
    """The tokens of one head's blocks, [tokens, head_size]."""
    stored = pool[kv_head][blocks].flatten(0, 1)
    if scales is None:
        return stored
    return stored.float() * scales[kv_head, blocks].flatten()[:, None]
