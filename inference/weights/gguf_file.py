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

PERMUTED_ARCHITECTURES = frozenset({"llama"})
"""Their q and k rows are stored with RoPE pairs side by side; all others as in the original."""

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


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
        self._places = {self._translated(place.name): place for place in header.tensors}
        self.config = self._config()

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

    def _dequantized(self, place: TensorPlace) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
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

    def _config(self) -> ModelConfig:
        architecture = str(self._value("general.architecture"))
        scaling = self._value(f"{architecture}.rope.scaling.type", default="none")
        if scaling != "none":
            raise CheckpointInvalid(f"{self._path}: RoPE scaling {scaling!r} is not supported")
        hidden_size = int(self._value(f"{architecture}.embedding_length"))
        heads = int(self._value(f"{architecture}.attention.head_count"))
        head_size = int(
            self._value(f"{architecture}.attention.key_length", default=hidden_size // heads)
        )
        rotated = int(self._value(f"{architecture}.rope.dimension_count", default=head_size))
        if rotated != head_size:
            raise CheckpointInvalid(f"{self._path}: RoPE on {rotated} of {head_size} is unknown")
        embedding = self._places.get("model.embed_tokens.weight")
        if embedding is None:
            raise CheckpointInvalid(f"{self._path}: no token embedding")
        return ModelConfig(
            architecture=architecture,
            vocab_size=embedding.shape[0],
            context_tokens_max=int(self._value(f"{architecture}.context_length")),
            layers=int(self._value(f"{architecture}.block_count")),
            hidden_size=hidden_size,
            feed_forward_size=int(self._value(f"{architecture}.feed_forward_length")),
            heads=heads,
            kv_heads=int(self._value(f"{architecture}.attention.head_count_kv", default=heads)),
            head_size=head_size,
            rope_theta=float(self._value(f"{architecture}.rope.freq_base", default=10_000.0)),
            norm_epsilon=float(self._value(f"{architecture}.attention.layer_norm_rms_epsilon")),
        )

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
