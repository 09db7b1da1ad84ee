"""How a model stretches its rotary frequencies beyond the context it was first trained on.

Names and meanings are those of `rope_parameters` in Hugging Face configurations. The readers of
weights fill these in, `inference.models.rotary_embedding` computes with them. Torch-free.
"""

from dataclasses import dataclass

YARN_BETA_FAST = 32.0
YARN_BETA_SLOW = 1.0


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """All positions divided by `factor` (Chen et al. 2023, position interpolation)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Long waves divided by `factor`, short ones kept, a ramp between (Llama 3.1)."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    trained_context_tokens: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """A ramp over dimensions between kept and divided waves (Peng et al. 2023).

    The fast end of the ramp turns `beta_fast` times within the trained context, the slow end
    `beta_slow` times. Cosines and sines are multiplied by `attention_factor`, where None means
    0.1 * ln(factor) + 1.
    """

    factor: float
    trained_context_tokens: int
    beta_fast: float = YARN_BETA_FAST
    beta_slow: float = YARN_BETA_SLOW
    attention_factor: float | None = None


@dataclass(frozen=True, slots=True)
class DivisorScaling:
    """Each frequency divided by its own number, which the checkpoint holds (GGUF `rope_freqs`)."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | DivisorScaling
