"""Paged attention on CPU: gather whole blocks, then few large products.

Which sequences share a product is `paged_attention_groups`' to say. Int8 KV is gathered as it is
stored, and its scales are applied to scores and weights. The runner makes one plan per step and
uses it in each layer.
"""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend, AttentionBatch, check_attention_shapes
from kernels.paged_attention_groups import AttentionGroup, attention_groups


def plan_cpu_attention(
    batch: AttentionBatch, block_tokens: int, *, invariant: bool = False
) -> Attend:
    """Sorts a step's sequences into groups once; the result is called for each layer.

    With `invariant`, what a token gets is the same to the bit however prompts are cut into steps;
    reading them takes longer.
    """
    groups, prefixes = attention_groups(batch, block_tokens, invariant=invariant)
    is_checked = False

    def attend(query: torch.Tensor, layer: KvLayer) -> torch.Tensor:
        nonlocal is_checked
        if not is_checked:
            # The layers of a pool are all alike.
            check_attention_shapes(query, layer, batch)
            is_checked = True
        for prefix in prefixes:
            prefix.read(layer)
        if len(groups) == 1:
            return _attend_group(query, layer, groups[0])
        output = torch.empty_like(query)
        for group in groups:
            output[group.rows] = _attend_group(query[group.rows], layer, group)
        return output

    return attend


def _attend_group(query: torch.Tensor, layer: KvLayer, group: AttentionGroup) -> torch.Tensor:
    group.kv.read(layer)
    if group.queries == 1:
        return _decode(query, group)
    return _verify(query, group) if group.as_decoded else _prefill(query, group)


def _decode(query: torch.Tensor, group: AttentionGroup) -> torch.Tensor:
    heads, head_size = query.shape[1:]
    kv, shared, sequences = group.kv, group.shared, group.sequences
    kv_heads = kv.keys.shape[0]
    batches = kv_heads * sequences
    # The query heads that share a KV head become the queries of one product.
    queries = query.view(sequences, kv_heads, -1, head_size).transpose(0, 1)
    queries = queries.reshape(batches, -1, head_size)
    keys, values = (floats.view(batches, -1, head_size) for floats in (kv.keys, kv.values))
    scores = torch.bmm(queries, keys.transpose(1, 2)).view(kv_heads, sequences, -1, keys.shape[1])
    if shared is None:
        weights = _weights(scores, group, head_size)
        attended = torch.bmm(weights.flatten(0, 1), values)
    else:
        # And those of all sequences the queries of another.
        queries = queries.view(kv_heads, -1, head_size)
        first = torch.bmm(queries, shared.keys.transpose(1, 2)).view(*scores.shape[:3], -1)
        weights = _weights(torch.cat((first, scores), -1), group, head_size)
        width = first.shape[-1]
        attended = torch.bmm(weights[..., width:].flatten(0, 1), values).view(queries.shape)
        attended.baddbmm_(weights[..., :width].flatten(1, 2), shared.values)
    attended = attended.view(kv_heads, sequences, -1, head_size)
    return attended.transpose(0, 1).reshape(sequences, heads, head_size)


def _verify(query: torch.Tensor, group: AttentionGroup) -> torch.Tensor:
    """Few queries of one sequence, each by the products that `_decode` would use for it alone: a
    draft is right or wrong by the very numbers that would have been drawn from without it."""
    kv = group.kv
    queries, heads, head_size = query.shape
    kv_heads, tokens = kv.keys.shape[:2]
    shared = query.view(queries, kv_heads, -1, head_size).transpose(0, 1).contiguous()
    scores = query.new_empty((kv_heads, queries, heads // kv_heads, tokens))
    for head, keys in enumerate(kv.keys.transpose(1, 2)):
        torch.bmm(shared[head], keys.expand(queries, -1, -1), out=scores[head])
    weights = _weights(scores, group, head_size)
    attended = torch.empty_like(shared)
    for head, values in enumerate(kv.values):
        torch.bmm(weights[head], values.expand(queries, -1, -1), out=attended[head])
    return attended.transpose(0, 1).reshape(query.shape)


def _weights(scores: torch.Tensor, group: AttentionGroup, head_size: int) -> torch.Tensor:
    """What multiplies the values as stored; scores [kv_heads, sequences or queries, ..., tokens].

    Scaling and masking are one call, since a call costs as much as its arithmetic here.
    """
    scale = 1.0 / math.sqrt(head_size)
    assert group.mask is not None
    if group.kv.scales is None:
        return torch.add(group.mask, scores, alpha=scale).softmax(-1)
    scales = group.kv.scales.view(2, scores.shape[0], group.sequences, 1, -1)
    if group.shared is not None and group.shared.scales is not None:
        shared = group.shared.scales[:, :, None, None].expand(*scales.shape[:4], -1)
        scales = torch.cat((shared, scales), -1)
    key_scales, value_scales = scales.unbind()
    return torch.addcmul(group.mask, scores, key_scales, value=scale).softmax(-1).mul_(value_scales)


def _prefill(query: torch.Tensor, group: AttentionGroup) -> torch.Tensor:
    queries, heads, head_size = query.shape
    keys, values = group.kv.keys, group.kv.values
    if group.kv.scales is not None:
        keys.mul_(group.kv.scales[0, ..., None])
        values.mul_(group.kv.scales[1, ..., None])
    kv_heads = keys.shape[0]
    sharing = heads // kv_heads
    # KV heads stand in for the batch, and a head's keys serve each sharing head unmoved.
    split = query.view(queries, kv_heads, sharing, head_size).permute(1, 2, 0, 3)
    width = queries if group.mask is None else keys.shape[1]
    keys, values = (
        floats[:, None, :width].expand(kv_heads, sharing, width, head_size)
        for floats in (keys, values)
    )
    attended = scaled_dot_product_attention(
        split,
        keys,
        values,
        attn_mask=None if group.mask is None else group.mask[0, :, 0],
        is_causal=group.mask is None,
    )
    return attended.permute(2, 0, 1, 3).reshape(query.shape)
