"""KV of a CPU's pool brought together for a product: whole blocks, as they are stored.

Int8 KV is a quarter of the bytes to fetch; its scales are left to whoever multiplies. Made by the
groups of paged attention on the CPU, one for each step and used for all its layers.
"""

import torch

from kernels.kv_layer import KvLayer


class GatheredKv:
    """The KV of some blocks, brought together layer after layer in the same memory.

    `keys` and `values` are float32 [kv_heads, tokens, head_size]; where `scales`, those of keys and
    those of values [2, kv_heads, tokens], is not None, they are still to be multiplied by them. All
    there once a layer was read.
    """

    keys: torch.Tensor
    values: torch.Tensor
    scales: torch.Tensor | None = None

    def __init__(self, blocks: torch.Tensor) -> None:
        self._blocks = blocks
        self._stored: torch.Tensor | None = None

    def read(self, layer: KvLayer) -> None:
        """Fetch one layer."""
        if self._stored is None:
            self._stored = self._reserve(layer)
        torch.index_select(layer.keys, 1, self._blocks, out=self._stored[0])
        torch.index_select(layer.values, 1, self._blocks, out=self._stored[1])
        if layer.key_scales is not None and layer.value_scales is not None:
            torch.index_select(layer.key_scales, 1, self._blocks, out=self._block_scales[0])
            torch.index_select(layer.value_scales, 1, self._blocks, out=self._block_scales[1])
            self._floats.copy_(self._stored)

    def _reserve(self, layer: KvLayer) -> torch.Tensor:
        shape = (2, layer.kv_heads, self._blocks.shape[0], *layer.keys.shape[2:])
        stored = self._floats = layer.keys.new_empty(shape)
        if layer.key_scales is not None:
            self._floats = torch.empty(shape)
            self._block_scales = torch.empty(shape[:-1])
            self.scales = self._block_scales.flatten(2)
        self.keys, self.values = self._floats.flatten(2, 3).unbind()
        return stored
