"""What a model family gets for one step: flat token rows and the KV pool they read and write.

The runner fills it, every family consumes it; nothing in it says which request a row belongs to.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend


SCALED_DTYPES = (torch.int8, torch.float8_e4m3fn)
"""KV of these types has one scale per head and token."""


class KvPool:
    """The KV of all layers in fixed blocks, a `KvLayer` each."""

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        blocks: int,
        block_tokens: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Reserves the pool. Zeros, since masked positions still enter products: no NaN there."""
        shape = (2, layers, kv_heads, blocks, block_tokens, head_size)
        self.blocks = blocks
        self.block_tokens = block_tokens
        self.device = device
        keys, values = (half.unbind() for half in _zeros(shape, dtype, device))
        if dtype in SCALED_DTYPES:
            key_scales, value_scales = (
                half.unbind() for half in _zeros(shape[:-1], torch.float32, device)
            )
            self._layers = tuple(map(KvLayer, keys, values, key_scales, value_scales))
        else:
            self._layers = tuple(map(KvLayer, keys, values))

    def layer(self, index: int) -> KvLayer:
        """Where one layer's keys and values lie."""
        return self._layers[index]

    @staticmethod
    def block_bytes(
        *, layers: int, kv_heads: int, block_tokens: int, head_size: int, dtype: torch.dtype
    ) -> int:
        """What one block takes over all layers, scales included."""
        scale_bytes = torch.float32.itemsize if dtype in SCALED_DTYPES else 0
        entry_bytes = head_size * dtype.itemsize + scale_bytes
        return 2 * layers * kv_heads * block_tokens * entry_bytes


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are the system's untouched pages: a block takes memory once it is written,
    # where torch writes them all at start (755 MB and a second for 16,384 tokens of SmolLM2).
    byte_count = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(byte_count, dtype=np.uint8)).view(dtype).view(shape)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """All tokens of a step, sequence after sequence; int64 vectors on the model's device.

    `positions` are within each sequence, `slots` where each token's KV goes, `logit_rows` the
    tokens whose successor is wanted. `attend` covers exactly these tokens.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    logit_rows: torch.Tensor
    attend: Attend
