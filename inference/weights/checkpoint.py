"""What a checkpoint offers to a model family, whatever file format it came in.

Tensors go by the names of the Hugging Face checkpoints of the family, rows in that order too; each
format's reader translates. Readers implement it, `inference.models` consumes it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inference.weights.rope_scaling import RopeScaling

if TYPE_CHECKING:
    # The server names CheckpointInvalid, and says what else is wrong before it waits for torch.
    import torch


class CheckpointInvalid(Exception):
    """The weights are not what the model needs; the message names the file or tensor."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder-only transformer. Sizes are in elements, `rope_theta` is a base.

    `context_tokens_max` is how far the model may go; where it attends to a sliding window, no
    further than that window.
    """

    architecture: str
    vocab_size: int
    context_tokens_max: int
    layers: int
    hidden_size: int
    feed_forward_size: int
    heads: int
    kv_heads: int
    head_size: int
    rope_theta: float
    norm_epsilon: float
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        """Raises CheckpointInvalid for heads that cannot be computed."""
        if min(self.heads, self.kv_heads) < 1 or self.heads % self.kv_heads:
            raise CheckpointInvalid(f"{self.heads} heads do not share {self.kv_heads} KV heads")
        if self.head_size < 2 or self.head_size % 2:
            raise CheckpointInvalid(f"heads of {self.head_size} do not divide into rotary pairs")


class Checkpoint(Protocol):
    """Tensors by name, read one at a time so that no second copy of the model is ever held."""

    config: ModelConfig

    def names(self) -> frozenset[str]:
        """Every tensor in the checkpoint."""
        ...

    def tensor(self, name: str) -> "torch.Tensor":
        """One tensor in float32 on the CPU. Raises CheckpointInvalid when there is none."""
        ...
