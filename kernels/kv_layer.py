"""One layer's keys and values in fixed blocks, and the formats they may be stored in.

Every kernel that reads or writes KV takes one of these; the runner's pool makes them. With scales,
an entry's value is its stored number times the scale of its (head, block, token): the scales are
indexed by block like the numbers, so they are shared, evicted and reused with it.
"""

from dataclasses import dataclass

import torch

STORED_MAX = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""The largest number of each quantized format; symmetric, so int8 leaves -128 out."""


@dataclass(frozen=True, slots=True)
class KvLayer:
    """`keys` and `values` are [kv_heads, blocks, block_tokens, head_size], both laid out alike, in
    float32, bfloat16, float16, int8 or float8_e4m3fn. `key_scales` and `value_scales` are float32
    [kv_heads, blocks, block_tokens] for int8 and float8, None otherwise.

    With heads outermost, gathering the blocks of many sequences yields their keys contiguous per
    head, ready for one batched product.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    @property
    def kv_heads(self) -> int:
        """Heads that keys and values have."""
        return self.keys.shape[0]

    @property
    def block_tokens(self) -> int:
        """Tokens in one block."""
        return self.keys.shape[2]

    @property
    def head_size(self) -> int:
        """Elements of one head."""
        return self.keys.shape[3]
