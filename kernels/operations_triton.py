"""A model family's operations on CUDA: each one launch of a Triton kernel.

The runner picks it where `operations_cpu` serves elsewhere. It keeps no state, waits for nothing on
the device and allocates only results, so a step of it can be captured as a CUDA graph.
"""

import torch

from kernels.activation_triton import silu_mul_triton
from kernels.kv_layer import KvLayer
from kernels.normalization_triton import add_rms_norm_triton, rms_norm_triton
from kernels.operations import HeadNorms
from kernels.rotary_triton import rotate_and_store_triton


class TritonOperations:
    """Implements `kernels.operations.Operations`; each raises ValueError for what does not fit."""

    def rms_norm(self, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """hidden [rows, size] divided by its root mean square, times weight [size]."""
        return rms_norm_triton(hidden, weight, epsilon)

    def add_rms_norm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + delta in the memory of `residual`, its RMS norm), both [rows, size]."""
        return add_rms_norm_triton(residual, delta, weight, epsilon)

    def rotate_and_store(
        self,
        qkv: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        slots: torch.Tensor,
        layer: KvLayer,
        norms: HeadNorms | None,
    ) -> torch.Tensor:
        """Rotates q and k of qkv [rows, heads + 2 * kv_heads, head_size], stores k and v."""
        return rotate_and_store_triton(qkv, cosines, sines, slots, layer, norms)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size]."""
        return silu_mul_triton(gate_up)
