"""What a model family computes between its projections, behind one narrow interface.

Two implementations: `operations_cpu` (torch; also the oracle of the tests) and `operations_triton`
(CUDA). The families call it, the runner picks it; it knows neither weights' formats nor requests.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.kv_layer import KvLayer


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms that some families put on each head of q and k before the rotation, [head_size]."""

    query: torch.Tensor
    key: torch.Tensor
    epsilon: float


class Operations(Protocol):
    """All tensors lie on one device; rows are the tokens of a step."""

    def rms_norm(self, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """hidden [rows, size] divided by its root mean square, times weight [size]."""
        ...

    def add_rms_norm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + delta, its RMS norm), both [rows, size]. May reuse the memory of `residual`
        for the first: the caller must not read `residual` afterwards."""
        ...

    def rotate_and_store(
        self,
        qkv: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        slots: torch.Tensor,
        layer: KvLayer,
        norms: HeadNorms | None,
    ) -> torch.Tensor:
        """Rotary positions on q and k, then k and v written into the pool.

        `qkv` is [rows, heads + 2 * kv_heads, head_size]; `cosines` and `sines` float32
        [rows, head_size / 2], pairs half a head apart; `slots` int64 [rows] =
        block * block_tokens + offset. Quantizes per (token, head) where the layer has scales.
        Returns the rotated queries [rows, heads, head_size].
        """
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size]."""
        ...
