"""Picks the model family for a checkpoint and loads it whole, or refuses it by name.

A new family is one module beside this one and one line in `FAMILIES`. Called by the runner.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from inference.models.llama import Llama
from inference.models.step_tensors import KvPool, StepTensors
from inference.models.tensor_source import TensorSource
from inference.weights.checkpoint import Checkpoint, CheckpointInvalid, ModelConfig


class Model(Protocol):
    """What the runner needs of a family."""

    config: ModelConfig

    def hidden(self, step: StepTensors, pool: KvPool) -> torch.Tensor:
        """Compute one step: [tokens, hidden_size] before the last norm."""
        ...

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last norm over rows of `hidden`."""
        ...

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Scores of what follows each row of `normed`: [rows, vocab_size] in float32."""
        ...


FAMILIES: dict[str, Callable[[ModelConfig, TensorSource], Model]] = {"llama": Llama}
"""By the architecture that the checkpoint names."""


def load_model(checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device) -> Model:
    """The model in `dtype` on `device`. Raises CheckpointInvalid for what it does not know."""
    config = checkpoint.config
    family = FAMILIES.get(config.architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise CheckpointInvalid(f"architecture {config.architecture!r} is not one of: {known}")
    source = TensorSource(checkpoint, dtype=dtype, device=device)
    model = family(config, source)
    source.require_empty()
    return model
