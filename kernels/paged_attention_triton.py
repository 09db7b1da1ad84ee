"""Paged attention on GPU: prefill, decode and every mixture of them through one Triton kernel.

The runner makes one plan per step and calls it for each layer; `StaticDecode` is the plan whose
buffers never move, for steps captured as CUDA graphs. Values are checked against the reference in
Triton's interpreter, and each shipped configuration is compiled for sm_80 and sm_90 in the tests.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl
from torch.nn.functional import pad

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend, AttentionBatch, check_attention_shapes
from kernels.paged_attention_kernels import combine_splits_kernel, paged_attention_kernel
from kernels.paged_attention_plan import (
    COMBINE_WARPS,
    Card,
    TileShape,
    cut,
    split_tokens,
    splits_max,
    tile_shapes,
)

HEAD_SIZES = (16, 32, 64, 128)
QUERY_TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


@dataclass(frozen=True, slots=True)
class _Tiles:
    """A `TileGroup` on the device; `splits` 1 means that tiles write the output themselves."""

    shape: TileShape
    sequences: torch.Tensor
    offsets: torch.Tensor
    queries_max: int
    splits: int
    split_tokens: torch.Tensor


def card_of(device: torch.device) -> Card:
    """What the plans need to know of a device; any CPU passes for a small card."""
    if device.type != "cuda":
        return Card(processors=8, native_float8=False)
    properties = torch.cuda.get_device_properties(device)
    return Card(
        processors=properties.multi_processor_count,
        native_float8=(properties.major, properties.minor) >= (8, 9),
    )


def plan_triton_attention(
    batch: AttentionBatch, device: torch.device, card: Card | None = None
) -> Attend:
    """Cuts a step into tiles once; the result launches the kernels for each layer.

    `batch` is on the CPU, where its values are looked at without waiting for the device. Sequences
    with long contexts are split over the whole card. `card` is the device's own unless given.
    Raises ValueError, when called, for shapes and layouts that the kernels cannot read.
    """
    card = card or card_of(device)
    counts = [last - first for first, last in itertools.pairwise(batch.query_starts.tolist())]
    contexts = batch.context_lengths.tolist()
    on_device = AttentionBatch(
        *_moved((batch.query_starts, batch.context_lengths, batch.block_tables), device)
    )
    groups: dict[tuple[int, int, int], list[_Tiles]] = {}

    def attend(query: torch.Tensor, layer: KvLayer) -> torch.Tensor:
        check_attention_shapes(query, layer, on_device)
        _check_layout(query, layer)
        key = (query.shape[1] // layer.kv_heads, layer.kv_heads, query.element_size())
        if key not in groups:
            groups[key] = _groups(counts, contexts, *key, card, device)
        output = query.new_empty(query.shape)
        for tiles in groups[key]:
            _launch(query, layer, output, on_device, tiles, card)
        return output

    return attend


class StaticDecode:
    """Attention of a decode step whose tensors never move: what a CUDA graph may capture.

    It covers `sequences` rows of one query each. The grid depends on that number and on the longest
    context a table can name, never on a step's values: a program beyond its sequence's context
    ends at once. Per step: `update` copies the new lengths and tables into place, then the graph is
    replayed. A call before the capture compiles the kernels; what a captured call allocates comes
    from the graph's own pool. Rows without a sequence have no context and
    come out as zeros.
    """

    def __init__(
        self,
        *,
        sequences: int,
        blocks_max: int,
        block_tokens: int,
        kv_heads: int,
        device: torch.device,
        card: Card | None = None,
    ) -> None:
        """Reserves the buffers: `sequences` tables of `blocks_max` blocks, all empty."""
        self._card = card or card_of(device)
        self._kv_heads = kv_heads
        context_max = blocks_max * block_tokens
        self._splits = min(
            splits_max(sequences, kv_heads, self._card),
            -(-context_max // self._card.split_tokens_min),
        )
        self._batch = AttentionBatch(
            torch.arange(sequences + 1, dtype=torch.int32, device=device),
            torch.zeros(sequences, dtype=torch.int32, device=device),
            torch.zeros((sequences, blocks_max), dtype=torch.int32, device=device),
        )
        self._offsets = torch.zeros(sequences, dtype=torch.int32, device=device)
        self._split_tokens = torch.full((1,), context_max, dtype=torch.int32, device=device)

    def update(self, batch: AttentionBatch) -> None:
        """Takes the sequences of a step, one query each, from the CPU; at most as many as reserved.

        Enqueues copies and waits for none of them.
        """
        sequences, width = batch.block_tables.shape
        reserved, width_max = self._batch.block_tables.shape
        if sequences > reserved or width > width_max:
            raise ValueError(f"{sequences} tables of {width} blocks exceed the reserved buffers")
        if batch.query_starts.tolist() != list(range(sequences + 1)):
            raise ValueError("a decode step has one query per sequence")
        # From other memory CUDA may wait for the step before.
        pins = self._offsets.is_cuda
        contexts = torch.zeros(reserved, dtype=torch.int32, pin_memory=pins)
        contexts[:sequences] = batch.context_lengths
        length = split_tokens(contexts.tolist(), self._kv_heads, self._splits, self._card)
        self._batch.context_lengths.copy_(contexts, non_blocking=True)
        self._batch.block_tables[:sequences, :width].copy_(batch.block_tables, non_blocking=True)
        length_there = torch.tensor([length], dtype=torch.int32, pin_memory=pins)
        self._split_tokens.copy_(length_there, non_blocking=True)

    def __call__(self, query: torch.Tensor, layer: KvLayer) -> torch.Tensor:
        """An `Attend` for [sequences, heads, head_size]."""
        check_attention_shapes(query, layer, self._batch)
        _check_layout(query, layer)
        if query.shape[0] != self._offsets.shape[0] or layer.kv_heads != self._kv_heads:
            raise ValueError(f"query {query.shape} is not what the buffers were reserved for")
        few, _ = tile_shapes(query.shape[1] // layer.kv_heads, query.element_size())
        output = query.new_empty(query.shape)
        # Tile n is sequence n, whose first query is row n.
        tiles = _Tiles(
            few, self._batch.query_starts, self._offsets, 1, self._splits, self._split_tokens
        )
        _launch(query, layer, output, self._batch, tiles, self._card)
        return output


def _groups(
    counts: Sequence[int],
    contexts: Sequence[int],
    sharing: int,
    kv_heads: int,
    element_bytes: int,
    card: Card,
    device: torch.device,
) -> list[_Tiles]:
    shapes = tile_shapes(sharing, element_bytes)
    on_device = []
    for group in cut(counts, contexts, kv_heads=kv_heads, shapes=shapes, card=card):
        sequences, offsets = torch.tensor(group.places, dtype=torch.int32).T
        length = torch.tensor([group.split_tokens], dtype=torch.int32)
        sequences, offsets, length = _moved((sequences, offsets, length), device)
        on_device.append(
            _Tiles(group.shape, sequences, offsets, group.queries_max, group.splits, length)
        )
    return on_device


def _moved(tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Int32 tensors onto the device by one copy, which is not waited for.

    Each begins at a multiple of 16 bytes: for a pointer that does not, Triton compiles anew.
    """
    padded = [pad(tensor.flatten(), (0, -tensor.numel() % 4)) for tensor in tensors]
    together = torch.cat(padded).to(device, non_blocking=True)
    parts = torch.split_with_sizes(together, [len(part) for part in padded])
    return [
        part[: tensor.numel()].view(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def _launch(
    query: torch.Tensor,
    layer: KvLayer,
    output: torch.Tensor,
    batch: AttentionBatch,
    tiles: _Tiles,
    card: Card,
) -> None:
    _, heads, head_size = query.shape
    shape, splits, kv_heads = tiles.shape, tiles.splits, layer.kv_heads
    count = tiles.offsets.shape[0]
    keys, values = (_readable(pool, card) for pool in (layer.keys, layer.values))
    # Without splits nothing is written there, and the output stands in.
    partials = log_sums = output
    if splits > 1:
        parts = (count, kv_heads, splits, shape.rows)
        partials = query.new_empty((*parts, head_size), dtype=torch.float32)
        log_sums = query.new_empty(parts, dtype=torch.float32)
    paged_attention_kernel[(count, kv_heads, splits)](
        query,
        keys,
        values,
        layer.key_scales,
        layer.value_scales,
        output,
        partials,
        log_sums,
        batch.query_starts,
        batch.context_lengths,
        batch.block_tables,
        tiles.sequences,
        tiles.offsets,
        tiles.split_tokens,
        math.log2(math.e) / math.sqrt(head_size),
        query.stride(0),
        query.stride(1),
        keys.stride(0),
        keys.stride(1),
        0 if layer.key_scales is None else layer.key_scales.stride(0),
        batch.block_tables.stride(0),
        sharing=heads // kv_heads,
        head_size=head_size,
        block_tokens=layer.block_tokens,
        tile_tokens=shape.tokens,
        tile_rows=shape.rows,
        round_keys=shape.keys,
        value_type=value_type(query.dtype, quantized=layer.key_scales is not None),
        split=splits > 1,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    if splits > 1:
        _combine(partials, log_sums, output, batch, tiles)


def _combine(
    partials: torch.Tensor,
    log_sums: torch.Tensor,
    output: torch.Tensor,
    batch: AttentionBatch,
    tiles: _Tiles,
) -> None:
    count, kv_heads, splits, rows, head_size = partials.shape
    sharing = output.shape[1] // kv_heads
    rows_used = min(tiles.shape.tokens, tiles.queries_max) * sharing
    combine_splits_kernel[(count, kv_heads, rows_used)](
        partials,
        log_sums,
        output,
        batch.query_starts,
        batch.context_lengths,
        tiles.sequences,
        tiles.offsets,
        tiles.split_tokens,
        splits,
        sharing=sharing,
        head_size=head_size,
        tile_tokens=tiles.shape.tokens,
        tile_rows=rows,
        splits_padded=1 << (splits - 1).bit_length(),
        num_warps=COMBINE_WARPS,
    )


def value_type(query_type: torch.dtype, *, quantized: bool) -> tl.dtype:
    """In what the weights multiply the values: float16 weights times scales would underflow."""
    if quantized and query_type is torch.float16:
        return tl.bfloat16
    return QUERY_TYPES[query_type]


def _readable(pool: torch.Tensor, card: Card) -> torch.Tensor:
    if pool.dtype is torch.float8_e4m3fn and not card.native_float8:
        return pool.view(torch.uint8)
    return pool


def _check_layout(query: torch.Tensor, layer: KvLayer) -> None:
    head_size = query.shape[2]
    if head_size not in HEAD_SIZES:
        raise ValueError(f"head size {head_size} is not one of {HEAD_SIZES}")
    if query.dtype not in QUERY_TYPES:
        raise ValueError(f"queries of {query.dtype} are not computed here")
    if query.stride(2) != 1 or layer.keys.stride() != layer.values.stride():
        raise ValueError("heads must be contiguous and both pools laid out alike")
    if layer.keys.stride()[2:] != (head_size, 1):
        raise ValueError("the tokens of a block must be contiguous")
    for scales in (layer.key_scales, layer.value_scales):
        if scales is not None and scales.stride()[1:] != (layer.block_tokens, 1):
            raise ValueError("the scales of a head must be contiguous")
