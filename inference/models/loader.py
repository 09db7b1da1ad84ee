"""Picks the model family for a checkpoint and loads it whole, or refuses it by name.

A new family is one module beside this one and one entry in `FAMILIES`. Called by the runner.
"""

import torch

from inference.models.decoder import Decoder
from inference.models.llama import LLAMA
from inference.models.mistral import MISTRAL
from inference.models.projection import WeightFormat
from inference.models.qwen2 import QWEN2
from inference.models.qwen3 import QWEN3
from inference.models.tensor_source import TensorSource
from inference.weights.checkpoint import Checkpoint, CheckpointInvalid
from kernels.operations import Operations

FAMILIES = {family.architecture: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3)}


def load_model(
    checkpoint: Checkpoint,
    *,
    operations: Operations,
    device: torch.device,
    dtype: torch.dtype,
    weight_format: WeightFormat = WeightFormat.FLOAT32,
) -> Decoder:
    """The model on `device`, its matrices in `weight_format`, everything else in `dtype`.

    Raises CheckpointInvalid for what it does not know.
    """
    config = checkpoint.config
    family = FAMILIES.get(config.architecture)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise CheckpointInvalid(f"architecture {config.architecture!r} is not one of: {known}")
    source = TensorSource(checkpoint, device=device, dtype=dtype, weight_format=weight_format)
    model = Decoder(family, config, source, operations)
    source.require_empty()
    return model
