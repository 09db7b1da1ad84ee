"""Paged attention on CPU: gather whole blocks, then few large products.

Sequences with one query (decode) are computed together, padded to the longest of their group; one
with several queries is computed alone. Blocks that many decoding sequences begin with are read
once, for the queries of all of them (Juravsky et al., "Hydragen", 2024). Int8 KV is gathered as it
is stored, a quarter of the bytes, and its scales are applied to scores and weights. The runner
makes one plan per step and uses it in each layer.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend, AttentionBatch, check_attention_shapes

PADDING_RATIO_MAX = 2
"""A decode group is split where padding would make a sequence read more than this many times."""
FEW_QUERIES_MAX = 8
"""Up to so many tokens that follow others in the cache are drafts to check, as a rule: bit-equality
with decoding is worth 2 ms of a step of 28 then (four drafts at context 128, SmolLM2)."""
GROUP_TOKENS_MAX = 2048
"""What a decode group gathers should stay in the processor's caches until it is multiplied: at 16
streams of 512 tokens, groups of so many take a fifth less than one of all."""
SHARED_SAVING_TOKENS_MIN = 2048
"""A prefix is read once for all where that saves reading so many tokens. What is less lies in the
caches anyway, and apart each sequence gets the same bits in any company."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences computed by one product.

    `rows` picks their queries, `kv` what each of them has, as many blocks each, after `shared`,
    which all of them begin with. `mask` is 0 where a query may look and -inf elsewhere:
    [1, sequences or queries, 1, context], or None where all of a sequence's tokens are queries.
    With `as_decoded` each of several queries is computed by the products that it would have alone.
    """

    rows: slice | torch.Tensor
    sequences: int
    queries: int
    kv: "_Gathered"
    mask: torch.Tensor | None
    shared: "_Gathered | None" = None
    as_decoded: bool = False


def plan_cpu_attention(
    batch: AttentionBatch, block_tokens: int, *, invariant: bool = False
) -> Attend:
    """Sorts a step's sequences into groups once; the result is called for each layer.

    With `invariant`, what a token gets is the same to the bit however prompts are cut into steps;
    reading them takes longer.
    """
    starts = batch.query_starts.tolist()
    contexts = batch.context_lengths.tolist()
    block_counts = [math.ceil(context / block_tokens) for context in contexts]
    single = [s for s in range(len(contexts)) if starts[s + 1] - starts[s] == 1]
    groups: list[_Group] = []
    prefixes: list[_Gathered] = []
    for shared_blocks, sharers in (
        [(0, single)] if invariant else _alike(batch, single, block_tokens)
    ):
        shared = None
        if shared_blocks:
            shared = _Gathered(batch.block_tables[sharers[0], :shared_blocks].long())
            prefixes.append(shared)
        own_counts = [count - shared_blocks for count in block_counts]
        groups += (
            _decode_group(
                batch,
                members,
                [starts[s] for s in members],
                range(shared_blocks, block_counts[longest]),
                block_tokens,
                shared,
            )
            for longest, members in _similar_lengths(
                sharers, own_counts, GROUP_TOKENS_MAX // block_tokens
            )
        )
    for s in range(len(contexts)):
        if starts[s + 1] - starts[s] > 1:
            rows = range(starts[s], starts[s + 1])
            groups += _several_queries(batch, s, rows, contexts[s], block_tokens, invariant)
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


def _attend_group(query: torch.Tensor, layer: KvLayer, group: _Group) -> torch.Tensor:
    group.kv.read(layer)
    if group.queries == 1:
        return _decode(query, group)
    return _verify(query, group) if group.as_decoded else _prefill(query, group)


class _Gathered:
    """The KV of some blocks, brought together layer after layer in the same memory.

    `keys` and `values` are float32 [kv_heads, tokens, head_size]; where `scales`, those of keys and
    those of values [2, kv_heads, tokens], is not None, they are still to be multiplied by them. All
    there once a layer was read.
    """

    keys: torch.Tensor
    values: torch.Tensor
    scales: torch.Tensor | None = None

    def __init__(self, blocks: torch.Tensor) -> None:
        self._blocks = blocks
        self._stored: torch.Tensor | None = None

    def read(self, layer: KvLayer) -> None:
        """Fetch one layer."""
        if self._stored is None:
            self._stored = self._reserve(layer)
        torch.index_select(layer.keys, 1, self._blocks, out=self._stored[0])
        torch.index_select(layer.values, 1, self._blocks, out=self._stored[1])
        if layer.key_scales is not None and layer.value_scales is not None:
            torch.index_select(layer.key_scales, 1, self._blocks, out=self._block_scales[0])
            torch.index_select(layer.value_scales, 1, self._blocks, out=self._block_scales[1])
            self._floats.copy_(self._stored)

    def _reserve(self, layer: KvLayer) -> torch.Tensor:
        shape = (2, layer.kv_heads, self._blocks.shape[0], *layer.keys.shape[2:])
        stored = self._floats = layer.keys.new_empty(shape)
        if layer.key_scales is not None:
            self._floats = torch.empty(shape)
            self._block_scales = torch.empty(shape[:-1])
            self.scales = self._block_scales.flatten(2)
        self.keys, self.values = self._floats.flatten(2, 3).unbind()
        return stored


def _decode(query: torch.Tensor, group: _Group) -> torch.Tensor:
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


def _verify(query: torch.Tensor, group: _Group) -> torch.Tensor:
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


def _weights(scores: torch.Tensor, group: _Group, head_size: int) -> torch.Tensor:
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


def _prefill(query: torch.Tensor, group: _Group) -> torch.Tensor:
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


def _alike(
    batch: AttentionBatch, sequences: list[int], block_tokens: int
) -> list[tuple[int, list[int]]]:
    """(blocks that all members begin with, members): each sequence once, under 0 those for which it
    would save too little. The block that a sequence still writes to is never among them."""
    full = ((batch.context_lengths - 1) // block_tokens).tolist()
    prefixes = {s: batch.block_tables[s, : full[s]].tolist() for s in sequences}
    runs: list[tuple[int, list[int]]] = []
    for sequence in sorted(sequences, key=prefixes.__getitem__):
        blocks, members = runs[-1] if runs else (0, [])
        # In this order, what the first and the last begin with all between them begin with.
        common = _common(prefixes[members[0]], prefixes[sequence]) if members else 0
        if common and common * len(members) >= blocks * (len(members) - 1):
            runs[-1] = common, [*members, sequence]
        else:
            runs.append((0, [sequence]))
    saving_min = SHARED_SAVING_TOKENS_MIN // block_tokens
    alike = [run for run in runs if run[0] * (len(run[1]) - 1) >= saving_min]
    together = {sequence for _, members in alike for sequence in members}
    return [(0, [s for s in sequences if s not in together]), *alike]


def _common(one: list[int], other: list[int]) -> int:
    """How many elements both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _similar_lengths(
    sequences: list[int], block_counts: list[int], blocks_max: int
) -> list[tuple[int, list[int]]]:
    """(longest, members in ascending order): groups within PADDING_RATIO_MAX, and of at most
    `blocks_max` blocks unless one sequence has more."""
    groups: list[tuple[int, list[int]]] = []
    for sequence in sorted(sequences, key=lambda s: -block_counts[s]):
        longest, members = groups[-1] if groups else (sequence, [])
        width = block_counts[longest]
        similar = width <= PADDING_RATIO_MAX * block_counts[sequence]
        if members and similar and width * (len(members) + 1) <= blocks_max:
            members.append(sequence)
        else:
            groups.append((sequence, [sequence]))
    return [(longest, sorted(members)) for longest, members in groups]


def _decode_group(
    batch: AttentionBatch,
    members: list[int],
    rows: list[int],
    blocks: range,
    block_tokens: int,
    shared: _Gathered | None,
) -> _Group:
    last_positions = batch.context_lengths[members] - 1
    return _Group(
        rows=_slice_if_adjacent(rows),
        sequences=len(members),
        queries=1,
        kv=_Gathered(batch.block_tables[members, blocks.start : blocks.stop].flatten().long()),
        mask=_causal_mask(last_positions[None, :, None, None], blocks.stop * block_tokens),
        shared=shared,
    )


def _several_queries(
    batch: AttentionBatch,
    sequence: int,
    rows: range,
    context: int,
    block_tokens: int,
    invariant: bool,
) -> list[_Group]:
    """The last block of what is computed, and drafts, by the products of decoding; what is before
    it by those of prefill.

    What a prefix hit leaves to compute of a prompt is its last block, so that it gets the same bits
    from the cache as it got when nothing was there: in int8 a rounding apart is soon a token apart.
    """
    position = context - len(rows)
    few = len(rows) <= FEW_QUERIES_MAX and position > 0
    last_block = (context - 1) // block_tokens * block_tokens
    if invariant or few or position >= last_block:
        return [_queries_group(batch, sequence, rows, context, block_tokens, as_decoded=True)]
    split = last_block - position
    return [
        _queries_group(batch, sequence, rows[:split], last_block, block_tokens, as_decoded=False),
        _queries_group(batch, sequence, rows[split:], context, block_tokens, as_decoded=True),
    ]


def _queries_group(
    batch: AttentionBatch,
    sequence: int,
    rows: range,
    context: int,
    block_tokens: int,
    *,
    as_decoded: bool,
) -> _Group:
    blocks = math.ceil(context / block_tokens)
    positions = torch.arange(context - len(rows), context)
    mask = None
    if as_decoded or len(rows) < context:
        mask = _causal_mask(positions[None, :, None, None], blocks * block_tokens)
    return _Group(
        rows=slice(rows.start, rows.stop),
        sequences=1,
        queries=len(rows),
        kv=_Gathered(batch.block_tables[sequence, :blocks].long()),
        mask=mask,
        as_decoded=as_decoded,
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
