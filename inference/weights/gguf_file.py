"""Reads a GGUF file as a checkpoint: dequantized to float32, names and row order translated.

Keeps the file mapped and dequantizes one tensor at a time. Refuses what it would have to guess:
an architecture, a tensor or a RoPE scaling it does not know. Called by the runner's loader.
"""

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from inference.weights.checkpoint import CheckpointInvalid, ModelConfig

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
            self._reader = gguf.GGUFReader(path)
        except (OSError, ValueError) as error:
            raise CheckpointInvalid(f"{path}: {error}") from error
        self._tensors = {self._translated(raw.name): raw for raw in self._reader.tensors}
        self.config = self._config()

    def names(self) -> frozenset[str]:
        """Every tensor in the file, under its Hugging Face name."""
        return frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor in float32, its rows in the order of the original checkpoint."""
        raw = self._tensors.get(name)
        if raw is None:
            raise CheckpointInvalid(f"{self._path}: no tensor {name}")
        values = gguf.dequantize(raw.data, raw.tensor_type)
        tensor = torch.from_numpy(np.array(values, dtype=np.float32))
        if self.config.architecture in PERMUTED_ARCHITECTURES:
            if name.endswith("q_proj.weight"):
                return unpermuted(tensor, self.config.heads)
            if name.endswith("k_proj.weight"):
                return unpermuted(tensor, self.config.kv_heads)
        return tensor

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
        embedding = self._tensors.get("model.embed_tokens.weight")
        if embedding is None:
            raise CheckpointInvalid(f"{self._path}: no token embedding")
        return ModelConfig(
            architecture=architecture,
            # GGUF lists the fastest dimension first.
            vocab_size=int(embedding.shape[1]),
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

    def _value(self, key: str, default: object = None) -> Any:  # GGUF values have many types
        field = self._reader.get_field(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise CheckpointInvalid(f"{self._path}: no metadata {key}")
        return default


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
