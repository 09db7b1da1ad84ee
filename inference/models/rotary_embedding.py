"""Rotary positions (Su et al. 2021): the table of cosines and sines a model turns its heads by.

Computed once when a model is loaded, in float32 on the CPU whatever the model computes in: an error
in an angle grows with the position. The scalings follow Hugging Face transformers, which the
goldens of the tests come from. Called by the decoder only.
"""

import math

import torch

from inference.weights.checkpoint import CheckpointInvalid, ModelConfig
from inference.weights.rope_scaling import (
    DivisorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)


class RotaryTable:
    """Cosines and sines for each position of the context, each [context, head_size / 2] float32."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        """Raises CheckpointInvalid for a scaling that does not fit the head."""
        frequencies = rotary_frequencies(config.head_size, config.rope_theta, config.rope_scaling)
        positions = torch.arange(config.context_tokens_max, dtype=torch.float32)
        angles = torch.outer(positions, frequencies)
        factor = attention_factor(config.rope_scaling)
        self._cosines = (angles.cos() * factor).to(device)
        self._sines = (angles.sin() * factor).to(device)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of int64 positions [rows], each [rows, head_size / 2]."""
        return self._cosines[positions], self._sines[positions]


def rotary_frequencies(head_size: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """Radians per position of each pair, [head_size / 2] in float32."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    frequencies = 1.0 / theta**exponents
    match scaling:
        case None:
            return frequencies
        case LinearScaling(factor):
            return frequencies / factor
        case Llama3Scaling():
            return _llama3(frequencies, scaling)
        case YarnScaling():
            return _yarn(frequencies, theta, scaling)
        case DivisorScaling(divisors):
            if len(divisors) != len(frequencies):
                raise CheckpointInvalid(f"{len(divisors)} RoPE divisors for heads of {head_size}")
            return frequencies / torch.tensor(divisors, dtype=torch.float32)


def attention_factor(scaling: RopeScaling | None) -> float:
    """What cosines and sines are multiplied by, which scales the attention by its square."""
    if not isinstance(scaling, YarnScaling):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1.0 else 1.0


def _llama3(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    turns = scaling.trained_context_tokens * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept * frequencies + (1.0 - kept) * frequencies / scaling.factor


def _yarn(frequencies: torch.Tensor, theta: float, scaling: YarnScaling) -> torch.Tensor:
    pairs = len(frequencies)

    def pair_that_turns(times: float) -> float:
        length = scaling.trained_context_tokens / (times * 2 * math.pi)
        return pairs * math.log(length) / math.log(theta)

    first = max(math.floor(pair_that_turns(scaling.beta_fast)), 0)
    last = min(math.ceil(pair_that_turns(scaling.beta_slow)), 2 * pairs - 1)
    # A ramp of no width would divide by zero.
    width = max(last - first, 0.001)
    divided = ((torch.arange(pairs, dtype=torch.float32) - first) / width).clamp(0.0, 1.0)
    return divided * frequencies / scaling.factor + (1.0 - divided) * frequencies
