"""Rotary positions and the way of keys and values into the pool: what every implementation does.

In float32 throughout, whatever the rows come in; the plain torch below is the oracle of the Triton
kernel's tests and serves any device and format. It must never write where no slot points.
"""

import torch

from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.operations import HeadNorms


def rotate_and_store_reference(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    slots: torch.Tensor,
    layer: KvLayer,
    norms: HeadNorms | None = None,
) -> torch.Tensor:
    """`Operations.rotate_and_store` (rotation as in RoFormer, Su 2021, pairs half a head apart).

    A row with a negative slot is rotated and not stored. Raises ValueError for shapes that do not
    fit each other.
    """
    check_rotary_shapes(qkv, cosines, sines, slots, layer)
    heads = qkv.shape[1] - 2 * layer.kv_heads
    query, key, value = qkv.float().tensor_split((heads, heads + layer.kv_heads), dim=1)
    if norms is not None:
        query = _normed(query, norms.query, norms.epsilon)
        key = _normed(key, norms.key, norms.epsilon)
    _store(layer.keys, layer.key_scales, slots, _rotated(key, cosines, sines))
    _store(layer.values, layer.value_scales, slots, value)
    return _rotated(query, cosines, sines).to(qkv.dtype)


def quantized(rows: torch.Tensor, stored_type: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(stored, scales [...] float32) of float32 rows [..., size], each scaled to its largest size.

    A row of zeros has scale 0. Ties round to even.
    """
    largest = STORED_MAX[stored_type]
    scales = rows.abs().amax(-1) / largest
    # The quotient may exceed the largest number by its rounding.
    scaled = (rows / scales.where(scales > 0, 1.0)[..., None]).clamp(-largest, largest)
    return (scaled.round() if stored_type is torch.int8 else scaled).to(stored_type), scales


def check_rotary_shapes(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    slots: torch.Tensor,
    layer: KvLayer,
) -> None:
    """Raises ValueError unless the shapes and types fit each other. Reads no tensor's values."""
    rows, half = qkv.shape[0], layer.head_size // 2
    if qkv.dim() != 3 or qkv.shape[1] <= 2 * layer.kv_heads or qkv.shape[2] != layer.head_size:
        raise ValueError(f"qkv {tuple(qkv.shape)} does not fit the pool {tuple(layer.keys.shape)}")
    for table in (cosines, sines):
        if table.shape != (rows, half) or table.dtype != torch.float32:
            raise ValueError(f"cosines and sines must be float32 of {(rows, half)}")
    if slots.shape != (rows,) or slots.dtype != torch.int64:
        raise ValueError("slots must be int64, one per row")
    if (layer.key_scales is not None) != (layer.keys.dtype in STORED_MAX):
        raise ValueError(f"a pool of {layer.keys.dtype} has scales exactly if it is quantized")


def _normed(heads: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + epsilon) * weight.float()


def _rotated(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


def _store(
    pool: torch.Tensor, scales: torch.Tensor | None, slots: torch.Tensor, rows: torch.Tensor
) -> None:
    """Rows [tokens, kv_heads, head_size] to their slots of a pool."""
    kept = slots >= 0
    if not kept.all():
        slots, rows = slots[kept], rows[kept]
    by_head = rows.transpose(0, 1)
    if scales is None:
        pool.flatten(1, 2).index_copy_(1, slots, by_head.to(pool.dtype))
        return
    stored, row_scales = quantized(by_head, pool.dtype)
    # index_copy_ does not know float8; its bytes are moved all the same.
    pool.view(torch.int8).flatten(1, 2).index_copy_(1, slots, stored.view(torch.int8))
    scales.flatten(1).index_copy_(1, slots, row_scales)
