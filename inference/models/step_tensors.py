"""What a model family gets for one step: flat token rows and the KV pool they read and write.

The runner fills it, every family consumes it; nothing in it says which request a row belongs to.
"""

import enum
import math
from dataclasses import dataclass

import numpy as np
import torch

from kernels.kv_layer import KvLayer
from kernels.paged_attention import Attend


class KvFormat(enum.StrEnum):
    """How keys and values are stored."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    """With a scale per head and token, like FLOAT8."""
    FLOAT8 = "float8"

    @property
    def dtype(self) -> torch.dtype:
        """The stored type."""
        return _KV_DTYPES[self]


_KV_DTYPES = {
    KvFormat.FLOAT32: torch.float32,
    KvFormat.BFLOAT16: torch.bfloat16,
    KvFormat.INT8: torch.int8,
    KvFormat.FLOAT8: torch.float8_e4m3fn,
}
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
        numbers = _zeros(shape, dtype, device)
        self.block_bytes = numbers.nbytes // blocks
        """What one block takes over all layers, scales included."""
        keys, values = (half.unbind() for half in numbers)
        if dtype in SCALED_DTYPES:
            scales = _zeros(shape[:-1], torch.float32, device)
            self.block_bytes += scales.nbytes // blocks
            key_scales, value_scales = (half.unbind() for half in scales)
            self._layers = tuple(map(KvLayer, keys, values, key_scales, value_scales))
        else:
            self._layers = tuple(map(KvLayer, keys, values))

    def layer(self, index: int) -> KvLayer:
        """Where one layer's keys and values lie."""
        return self._layers[index]


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
