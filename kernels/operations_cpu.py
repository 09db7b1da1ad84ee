"""The operations between projections in plain torch: for the CPU, and the oracle of the tests.

Runs on any device, which is what the tests of the Triton kernels compare with. The runner picks it
where there is no CUDA; it knows neither weights' formats nor requests.
"""

import torch
from torch.nn.functional import rms_norm, silu

from kernels.kv_layer import KvLayer
from kernels.operations import HeadNorms


class CpuOperations:
    """`Operations` by torch's own functions."""

    def rms_norm(self, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """hidden [rows, size] divided by its root mean square, times weight [size]."""
        return rms_norm(hidden, weight.shape, weight, epsilon)

    def add_rms_norm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + delta, its RMS norm)."""
        total = residual + delta
        return total, rms_norm(total, weight.shape, weight, epsilon)

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
        heads = qkv.shape[1] - 2 * layer.kv_heads
        query, key = qkv[:, :heads], qkv[:, heads : -layer.kv_heads]
        value = qkv[:, -layer.kv_heads :]
        if norms is not None:
            query = rms_norm(query, norms.query.shape, norms.query, norms.epsilon)
            key = rms_norm(key, norms.key.shape, norms.key, norms.epsilon)
        _store(layer.keys, layer.key_scales, slots, _rotated(key, cosines, sines))
        _store(layer.values, layer.value_scales, slots, value)
        return _rotated(query, cosines, sines)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate) * up


def _rotated(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions on [rows, heads, head_size], pairs half a head apart."""
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    return torch.cat(
        (first * cosines - second * sines, second * cosines + first * sines), dim=-1
    ).to(heads.dtype)


def _store(
    pool: torch.Tensor, scales: torch.Tensor | None, slots: torch.Tensor, rows: torch.Tensor
) -> None:
    """Write rows [tokens, kv_heads, head_size], with a scale per token and head where wanted."""
    if scales is not None:
        largest = 127.0 if pool.dtype == torch.int8 else torch.finfo(pool.dtype).max
        row_scales = rows.float().abs().amax(-1) / largest
        scales.flatten(1, 2).index_copy_(1, slots, row_scales.T)
        rows = rows.float() / row_scales.clamp(min=1e-30)[..., None]
        rows = rows.round() if pool.dtype == torch.int8 else rows
    pool.flatten(1, 2).index_copy_(1, slots, rows.to(pool.dtype).transpose(0, 1))
