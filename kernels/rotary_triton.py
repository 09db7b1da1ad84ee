"""Head norms, rotary positions and the write into the KV pool, in one pass over a step's rows.

One launch reads q, k and v once and writes the rotated queries and the stored keys and values;
torch takes a dozen for the same. Called by `operations_triton`; must agree with `rotary`, whose
reference its tests hold it to.
"""

import torch
import triton
import triton.language as tl

from kernels.float8 import FLOAT8_MAX, encode_float8
from kernels.kv_layer import KvLayer
from kernels.operations import HeadNorms
from kernels.rotary import check_rotary_shapes

TILE_ELEMENTS = 1024
"""Elements of one program: wide enough that a prefill is not all program starts, and few enough
that the heads of a single decoded row still spread over several multiprocessors."""
HALVES = (8, 16, 32, 64)
INT8_MAX = tl.constexpr(127.0)
ROUNDING = tl.constexpr(12582912.0)
"""1.5 * 2^23: added to a float32 below 2^22, it leaves the nearest integer, ties to even."""


def rotate_and_store_triton(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    slots: torch.Tensor,
    layer: KvLayer,
    norms: HeadNorms | None = None,
) -> torch.Tensor:
    """`Operations.rotate_and_store` on CUDA; a row with a negative slot is not stored.

    Negative slots are for the padding rows of a captured decode step. Raises ValueError for shapes
    and layouts that the kernel cannot read.
    """
    check_rotary_shapes(qkv, cosines, sines, slots, layer)
    _check_layout(qkv, cosines, sines, slots, layer)
    rows, stacked, head_size = qkv.shape
    heads = stacked - 2 * layer.kv_heads
    rotated = qkv.new_empty((rows, heads, head_size))
    keys, values = (
        pool.view(torch.uint8) if pool.dtype is torch.float8_e4m3fn else pool
        for pool in (layer.keys, layer.values)
    )
    tile_heads = max(1, TILE_ELEMENTS // head_size)
    query_tiles, kv_tiles = (-(-count // tile_heads) for count in (heads, layer.kv_heads))
    rotate_and_store_kernel[(rows, query_tiles + 2 * kv_tiles)](
        qkv,
        cosines,
        sines,
        slots,
        None if norms is None else norms.query,
        None if norms is None else norms.key,
        rotated,
        keys,
        values,
        layer.key_scales,
        layer.value_scales,
        0.0 if norms is None else norms.epsilon,
        qkv.stride(0),
        layer.keys.stride(0),
        layer.keys.stride(1),
        0 if layer.key_scales is None else layer.key_scales.stride(0),
        heads=heads,
        kv_heads=layer.kv_heads,
        half=head_size // 2,
        block_tokens=layer.block_tokens,
        tile_heads=tile_heads,
        num_warps=4,
    )
    return rotated


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def rotate_and_store_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    qkv,
    cosines,
    sines,
    slots,
    query_norm,
    key_norm,
    rotated,
    key_pool,
    value_pool,
    key_scales,
    value_scales,
    epsilon,
    row_stride,
    pool_head_stride,
    pool_block_stride,
    scales_head_stride,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    block_tokens: tl.constexpr,
    tile_heads: tl.constexpr,
):
    """One row's `tile_heads` heads, all of them queries, keys or values.

    Tiles come in that order; a head is held as two halves, which is what a rotation pairs. uint8
    pools are float8_e4m3fn.
    """
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    query_tiles: tl.constexpr = (heads + tile_heads - 1) // tile_heads
    kv_tiles: tl.constexpr = (kv_heads + tile_heads - 1) // tile_heads
    sizes = tl.arange(0, half)
    in_tile = tl.arange(0, tile_heads)
    qkv += row * row_stride

    if tile < query_tiles:
        head = tile * tile_heads + in_tile
        first, second = _halves(qkv, head, head < heads, half)
        if query_norm is not None:
            first, second = _normed(first, second, query_norm, epsilon, half)
        first, second = _turned(first, second, cosines, sines, row, half)
        places = ((row * heads + head) * 2 * half)[:, None] + sizes[None, :]
        mask = (head < heads)[:, None]
        tl.store(rotated + places, first.to(rotated.dtype.element_ty), mask=mask)
        tl.store(rotated + places + half, second.to(rotated.dtype.element_ty), mask=mask)
        return

    slot = tl.load(slots + row)
    if slot < 0:
        return
    is_value = tile >= query_tiles + kv_tiles
    head = (tile - query_tiles - tl.where(is_value, kv_tiles, 0)) * tile_heads + in_tile
    is_head = head < kv_heads
    first_head = tl.where(is_value, heads + kv_heads, heads)
    first, second = _halves(qkv + first_head * 2 * half, head, is_head, half)
    entries = head.to(tl.int64) * pool_head_stride + (slot // block_tokens) * pool_block_stride
    entries += slot % block_tokens * 2 * half
    scale_places = head.to(tl.int64) * scales_head_stride + slot
    if is_value:
        _store(first, second, value_pool, value_scales, entries, scale_places, is_head, half)
    else:
        if key_norm is not None:
            first, second = _normed(first, second, key_norm, epsilon, half)
        first, second = _turned(first, second, cosines, sines, row, half)
        _store(first, second, key_pool, key_scales, entries, scale_places, is_head, half)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _halves(row, head, is_head, half: tl.constexpr):  # type: ignore[no-untyped-def]
    """Both halves of some heads of one row, [tile_heads, half] in float32."""
    places = (head * 2 * half)[:, None] + tl.arange(0, half)[None, :]
    first = tl.load(row + places, mask=is_head[:, None], other=0.0)
    second = tl.load(row + places + half, mask=is_head[:, None], other=0.0)
    return first.to(tl.float32), second.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _normed(first, second, weight, epsilon, half: tl.constexpr):  # type: ignore[no-untyped-def]
    sizes = tl.arange(0, half)
    squares = tl.sum(first * first + second * second, 1) / (2 * half)
    inverse = tl.rsqrt(squares + epsilon)[:, None]
    first_weight = tl.load(weight + sizes).to(tl.float32)
    second_weight = tl.load(weight + half + sizes).to(tl.float32)
    return first * inverse * first_weight[None, :], second * inverse * second_weight[None, :]


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _turned(first, second, cosines, sines, row, half: tl.constexpr):  # type: ignore[no-untyped-def]
    sizes = tl.arange(0, half)
    cosine = tl.load(cosines + row * half + sizes)[None, :]
    sine = tl.load(sines + row * half + sizes)[None, :]
    return first * cosine - second * sine, second * cosine + first * sine


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _store(  # type: ignore[no-untyped-def]
    first, second, pool, scales, entries, scale_places, is_head, half: tl.constexpr
):
    """Into the pool as its type is; quantized ones by the largest size within each head."""
    places = entries[:, None] + tl.arange(0, half)[None, :]
    mask = is_head[:, None]
    if scales is None:
        tl.store(pool + places, first.to(pool.dtype.element_ty), mask=mask)
        tl.store(pool + places + half, second.to(pool.dtype.element_ty), mask=mask)
    else:
        largest: tl.constexpr = FLOAT8_MAX if pool.dtype.element_ty == tl.uint8 else INT8_MAX
        scale = tl.maximum(tl.max(tl.abs(first), 1), tl.max(tl.abs(second), 1)) / largest
        tl.store(scales + scale_places, scale, mask=is_head)
        divisor = tl.where(scale == 0.0, 1.0, scale)[:, None]
        tl.store(pool + places, _stored(first / divisor, pool.dtype.element_ty), mask=mask)
        tl.store(pool + places + half, _stored(second / divisor, pool.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _stored(scaled, stored_type: tl.constexpr):  # type: ignore[no-untyped-def]
    if stored_type == tl.uint8:
        return encode_float8(scaled)
    else:  # noqa: RET505  Triton would compile what follows a return as well
        return (tl.clamp(scaled, -INT8_MAX, INT8_MAX) + ROUNDING - ROUNDING).to(tl.int8)


def _check_layout(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    slots: torch.Tensor,
    layer: KvLayer,
) -> None:
    if qkv.shape[2] // 2 not in HALVES:
        raise ValueError(f"head size {qkv.shape[2]} is not twice one of {HALVES}")
    if qkv.stride()[1:] != (qkv.shape[2], 1):
        raise ValueError("the heads of a row must be contiguous")
    if not (cosines.is_contiguous() and sines.is_contiguous() and slots.is_contiguous()):
        raise ValueError("cosines, sines and slots must be contiguous")
    if layer.keys.stride() != layer.values.stride() or layer.keys.stride()[2:] != (
        layer.head_size,
        1,
    ):
        raise ValueError("both pools must be laid out alike, the tokens of a block contiguous")
