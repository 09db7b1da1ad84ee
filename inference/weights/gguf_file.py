"""Reads a GGUF file as a checkpoint: dequantized to float32, names and row order translated.

Keeps the file mapped and dequantizes one tensor at a time. Refuses what it would have to guess:
an architecture, a tensor or a RoPE scaling it does not know. Called by the runner's loader.
"""

import re
from mmap import ACCESS_READ, mmap
from pathlib import Path

import gguf
import numpy as np
import torch

from inference.weights.checkpoint import CheckpointInvalid, ModelConfig
from inference.weights.gguf_header import Scalar, TensorPlace, read_header
from inference.weights.rope_scaling import (
    YARN_BETA_FAST,
    YARN_BETA_SLOW,
    DivisorScaling,
    LinearScaling,
    RopeScaling,
    YarnScaling,
)

PERMUTED_ARCHITECTURES = frozenset({"llama"})
"""Their q and k rows are stored with RoPE pairs side by side; all others as in the original."""

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
ROPE_DIVISORS = "rope_freqs.weight"
"""What Llama 3.1 and later divide their rotary frequencies by: configuration stored as a tensor."""
SCALING_KEYS = frozenset(
    {
        *("type", "factor", "original_context_length", "finetuned"),
        *("yarn_beta_fast", "yarn_beta_slow"),
    }
)
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}

Values = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class GgufFile:
    """One GGUF file on disk, as a `Checkpoint`."""

    def __init__(self, path: Path) -> None:
        """Maps the file. Raises CheckpointInvalid for what cannot be read faithfully."""
        self._path = path
        try:
            with path.open("rb") as file:
                self._file = mmap(file.fileno(), 0, access=ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointInvalid(f"{path}: {error}") from error
        header = read_header(self._file)
        self._metadata = header.metadata
        if int(self._value("split.count", default=1)) > 1:
            raise CheckpointInvalid(f"{path}: one part of several; merge them into one file")
        places = {place.name: place for place in header.tensors}
        divisors = places.pop(ROPE_DIVISORS, None)
        self._places = {self._translated(name): place for name, place in places.items()}
        self.config = self._config(None if divisors is None else self._dequantized(divisors))

    def names(self) -> frozenset[str]:
        """Every tensor in the file, under its Hugging Face name."""
        return frozenset(self._places)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor in float32, its rows in the order of the original checkpoint."""
        place = self._places.get(name)
        if place is None:
            raise CheckpointInvalid(f"{self._path}: no tensor {name}")
        tensor = torch.from_numpy(self._dequantized(place))
        if self.config.architecture in PERMUTED_ARCHITECTURES:
            if name.endswith("q_proj.weight"):
                return unpermuted(tensor, self.config.heads)
            if name.endswith("k_proj.weight"):
                return unpermuted(tensor, self.config.kv_heads)
        return tensor

    def _dequantized(self, place: TensorPlace) -> Values:
        try:
            kind = gguf.GGMLQuantizationType(place.type_id)
            byte_shape = gguf.quant_shape_to_byte_shape(place.shape, kind)
            packed = np.frombuffer(
                self._file, np.uint8, count=int(np.prod(byte_shape)), offset=place.offset
            ).reshape(byte_shape)
            values = gguf.dequantize(packed, kind)
        except (ValueError, NotImplementedError) as error:
            raise CheckpointInvalid(f"{self._path}: {place.name}: {error}") from error
        # Unquantized tensors come back as views of the read-only file.
        return values.astype(np.float32, copy=not values.flags.writeable)

    def _translated(self, name: str) -> str:
        if name in TOP_NAMES:
            return TOP_NAMES[name]
        match = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
        if match is None or match[2] not in LAYER_NAMES:
            raise CheckpointInvalid(f"{self._path}: unknown tensor {name}")
        return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}"

    def _config(self, rope_divisors: Values | None) -> ModelConfig:
        architecture = str(self._value("general.architecture"))
        hidden_size = int(self._value(f"{architecture}.embedding_length"))
        heads = int(self._value(f"{architecture}.attention.head_count"))
        head_size = int(
            self._value(f"{architecture}.attention.key_length", default=hidden_size // heads)
        )
        rotated = int(self._value(f"{architecture}.rope.dimension_count", default=head_size))
        if rotated != head_size:
            raise CheckpointInvalid(f"{self._path}: RoPE on {rotated} of {head_size} is unknown")
        if (
            int(self._value(f"{architecture}.attention.value_length", default=head_size))
            != head_size
        ):
            raise CheckpointInvalid(f"{self._path}: keys and values of different size")
        embedding = self._places.get("model.embed_tokens.weight")
        if embedding is None:
            raise CheckpointInvalid(f"{self._path}: no token embedding")
        context = int(self._value(f"{architecture}.context_length"))
        window = int(self._value(f"{architecture}.attention.sliding_window", default=0))
        return ModelConfig(
            architecture=architecture,
            vocab_size=embedding.shape[0],
            context_tokens_max=min(context, window or context),
            layers=int(self._value(f"{architecture}.block_count")),
            hidden_size=hidden_size,
            feed_forward_size=int(self._value(f"{architecture}.feed_forward_length")),
            heads=heads,
            kv_heads=int(self._value(f"{architecture}.attention.head_count_kv", default=heads)),
            head_size=head_size,
            rope_theta=float(self._value(f"{architecture}.rope.freq_base", default=10_000.0)),
            norm_epsilon=float(self._value(f"{architecture}.attention.layer_norm_rms_epsilon")),
            rope_scaling=self._rope_scaling(architecture, context, rope_divisors),
        )

    def _rope_scaling(
        self, architecture: str, context: int, divisors: Values | None
    ) -> RopeScaling | None:
        prefix = f"{architecture}.rope.scaling."
        found = {
            key.removeprefix(prefix): value
            for key, value in self._metadata.items()
            if key.startswith(prefix)
        }
        kind = found.get("type", "none")
        unknown = sorted(found.keys() - SCALING_KEYS)
        if unknown or (divisors is not None and kind != "none"):
            raise CheckpointInvalid(
                f"{self._path}: RoPE scaling {kind!r} with {unknown or ROPE_DIVISORS} is unknown"
            )
        if divisors is not None:
            return DivisorScaling(tuple(divisors.tolist()))
        if kind == "none":
            return None
        factor = float(self._value(f"{prefix}factor"))
        if kind == "linear":
            return LinearScaling(factor)
        if kind == "yarn":
            return YarnScaling(
                factor=factor,
                trained_context_tokens=int(found.get("original_context_length", context)),
                beta_fast=float(found.get("yarn_beta_fast", YARN_BETA_FAST)),
                beta_slow=float(found.get("yarn_beta_slow", YARN_BETA_SLOW)),
            )
        raise CheckpointInvalid(f"{self._path}: RoPE scaling {kind!r} is not supported")

    def _value(self, key: str, default: Scalar | None = None) -> Scalar:
        value = self._metadata.get(key, default)
        if value is None:
            raise CheckpointInvalid(f"{self._path}: no metadata {key}")
        return value


def unpermuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """[rows, columns] with the rows of each head in the original order.

    GGUF keeps the two halves of a RoPE pair in adjacent rows (0, 1), (2, 3), ...; the original has
    them half a head apart. Raises CheckpointInvalid when the rows don't divide into such heads.
    """
    rows, columns = weight.shape
    if rows % (2 * heads):
        raise CheckpointInvalid(f"{rows} rows do not divide into {heads} heads of pairs")
    pairs = weight.view(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
