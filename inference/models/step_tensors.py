"""What a model family gets for one step: flat token rows and the KV pool they read and write.

The runner fills it, every family consumes it; nothing in it says which request a row belongs to.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from kernels.paged_attention import Attend


class KvPool:
    """Keys and values of all layers in fixed blocks, each [kv_heads, blocks, tokens, head_size]."""

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
        self.keys, self.values = (half.unbind() for half in _zeros(shape, dtype, device))

    def store(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Write rows [tokens, kv_heads, head_size] at slots = block * block_tokens + offset."""
        for pool, rows in ((self.keys[layer], keys), (self.values[layer], values)):
            pool.flatten(1, 2).index_copy_(1, slots, rows.transpose(0, 1))


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
