"""What the config.json of a Hugging Face folder says about a decoder, checked and in one shape.

Knows the spelling of older files (`rope_theta`, `rope_scaling`) and of newer ones
(`rope_parameters`). The reader of weights and the build of bundles both call it, so that they agree
on vocabulary and context; hence torch-free. It must never guess: what it does not know, it refuses.
"""

from pathlib import Path

import msgspec

CONFIG_FILE = "config.json"
CONFIG_BYTES_MAX = 1024 * 1024
SLIDING_LAYER = "sliding_attention"
ROPE_THETA_DEFAULT = 10_000.0
MISTRAL_WINDOW_DEFAULT = 4096
"""What a Mistral that names no sliding window has; null means none."""


class ConfigInvalid(Exception):
    """The configuration is missing, malformed or of a kind that is not supported."""


class RopeParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rotary scaling as either spelling has it; a field nobody knows is refused."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    partial_rotary_factor: float = 1.0

    @property
    def kind(self) -> str:
        """`default`, `linear`, `llama3`, ..., as the file spells it."""
        return self.rope_type or self.type or "default"


class HuggingFaceConfig(msgspec.Struct, frozen=True):
    """The fields that decide what a decoder computes. Names are the file's."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    rms_norm_eps: float
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    rope_theta: float | None = None
    rope_scaling: RopeParameters | None = None
    rope_parameters: RopeParameters | None = None
    partial_rotary_factor: float = 1.0
    sliding_window: int | msgspec.UnsetType | None = msgspec.UNSET
    use_sliding_window: bool | None = None
    layer_types: tuple[str, ...] | None = None
    quantization_config: object | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    @property
    def rope(self) -> RopeParameters:
        """The scaling, in whichever spelling the file has."""
        return self.rope_parameters or self.rope_scaling or RopeParameters()

    @property
    def theta(self) -> float:
        """The base of the rotary frequencies."""
        return self.rope.rope_theta or self.rope_theta or ROPE_THETA_DEFAULT

    @property
    def context_tokens_max(self) -> int:
        """How far the model may go: not beyond a sliding window, where attention stops being plain.

        Models of Qwen name a window and switch it off; newer files name the kind of each layer.
        """
        window = self.sliding_window
        if window is msgspec.UNSET:
            window = MISTRAL_WINDOW_DEFAULT if self.model_type == "mistral" else None
        if self.layer_types is not None:
            slides = SLIDING_LAYER in self.layer_types
        elif self.use_sliding_window is not None:
            slides = self.use_sliding_window
        else:
            slides = self.model_type == "mistral"
        if not slides or not isinstance(window, int):
            return self.max_position_embeddings
        return min(window, self.max_position_embeddings)


def read_config(folder: Path) -> HuggingFaceConfig:
    """The checked configuration of a folder. Raises ConfigInvalid."""
    path = folder / CONFIG_FILE
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise ConfigInvalid(f"{path}: larger than {CONFIG_BYTES_MAX} bytes")
        config = msgspec.json.decode(path.read_bytes(), type=HuggingFaceConfig)
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigInvalid(f"{path}: {error}") from error
    sizes = (
        *(config.vocab_size, config.hidden_size, config.intermediate_size),
        *(config.num_hidden_layers, config.num_attention_heads, config.max_position_embeddings),
    )
    if min(sizes) < 1:
        raise ConfigInvalid(f"{path}: a size is not positive")
    if config.quantization_config is not None:
        raise ConfigInvalid(f"{path}: weights quantized by another tool are not supported")
    if config.hidden_act != "silu":
        raise ConfigInvalid(f"{path}: activation {config.hidden_act!r} is not supported")
    if min(config.partial_rotary_factor, config.rope.partial_rotary_factor) != 1.0:
        raise ConfigInvalid(f"{path}: rotary positions on a part of each head are not supported")
    return config
