"""The operations between projections in plain torch: for the CPU, and the oracle of the tests.

Runs on any device, which is what the tests of the Triton kernels compare with. The runner picks it
where there is no CUDA; it knows neither weights' formats nor requests. At a few rows each call of
torch costs more than its arithmetic, so what counts is how few there are.
"""

import torch
from torch.nn.functional import silu

from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.operations import HeadNorms

SCALE_MIN = 1e-30
"""Keeps a key or value of zeros from being divided by zero."""


class CpuOperations:
    """`Operations` by torch's own functions."""

    def rms_norm(self, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """hidden [rows, size] divided by its root mean square, times weight [size]."""
        return _rms_norm(hidden, weight, epsilon)

    def add_rms_norm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + delta in the memory of `residual`, its RMS norm)."""
        residual.add_(delta)
        return residual, _rms_norm(residual, weight, epsilon)

    def rotate_and_store(
        self,
        qkv: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        slots: torch.Tensor,
        layer: KvLayer,
        norms: HeadNorms | None,
    ) -> torch.Tensor:
        """See `Operations`; returns the rotated queries [rows, heads, head_size]."""
        kv_heads = layer.kv_heads
        heads = qkv.shape[1] - 2 * kv_heads
        turning, value = qkv[:, :-kv_heads], qkv[:, -kv_heads:]
        if norms is not None:
            query = _rms_norm(turning[:, :heads], norms.query, norms.epsilon)
            key = _rms_norm(turning[:, heads:], norms.key, norms.epsilon)
            turning = torch.cat((query, key), dim=1)
        turned = _rotated(turning, cosines, sines)
        _store(layer, slots, turned[:, heads:], value)
        return turned[:, :heads]

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate).mul_(up)


def _rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Over the last dimension. torch's own is six calls on the CPU, three of them over all rows."""
    norm: torch.Tensor = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
    factor = norm.square_().div_(hidden.shape[-1]).add_(epsilon).rsqrt_()
    return (hidden * factor).mul_(weight).to(hidden.dtype)


def _rotated(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions on [rows, heads, head_size], pairs half a head apart."""
    halves = heads.view(*heads.shape[:2], 2, -1)
    turned = halves * cosines[:, None, None]
    sines = sines[:, None]
    turned[:, :, 0].addcmul_(halves[:, :, 1], sines, value=-1)
    turned[:, :, 1].addcmul_(halves[:, :, 0], sines)
    return turned.flatten(2).to(heads.dtype)


def _store(layer: KvLayer, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Write rows [tokens, kv_heads, head_size], with a scale per token and head where wanted."""
    if layer.key_scales is None or layer.value_scales is None:
        for pool, rows in ((layer.keys, key), (layer.values, value)):
            pool.flatten(1, 2).index_copy_(1, slots, rows.to(pool.dtype).transpose(0, 1))
        return
    both = torch.cat((key, value), dim=1).float()
    scales = torch.linalg.vector_norm(both, torch.inf, dim=-1).div_(STORED_MAX[layer.keys.dtype])
    both.div_(scales.clamp(min=SCALE_MIN)[..., None])
    if layer.keys.dtype is torch.int8:
        both.round_()
    # index_copy_ does not know float8; its bytes are moved all the same.
    numbers = both.to(layer.keys.dtype).view(torch.int8).transpose(0, 1)
    for pool, pool_scales, heads in (
        (layer.keys, layer.key_scales, slice(None, layer.kv_heads)),
        (layer.values, layer.value_scales, slice(layer.kv_heads, None)),
    ):
        pool.view(torch.int8).flatten(1, 2).index_copy_(1, slots, numbers[heads])
        pool_scales.flatten(1).index_copy_(1, slots, scales.T[heads])
