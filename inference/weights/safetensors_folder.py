"""Reads a Hugging Face folder as a checkpoint: config.json and safetensors, whole or in shards.

The files stay mapped and one tensor at a time is widened to float32. Refuses what it would have to
guess and any file name that leaves the folder. Opened through `open_checkpoint`.
"""

from itertools import groupby
from pathlib import Path
from typing import Protocol, cast

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from inference.hugging_face_config import (
    ConfigInvalid,
    HuggingFaceConfig,
    RopeParameters,
    read_config,
)
from inference.weights.checkpoint import CheckpointInvalid, ModelConfig
from inference.weights.rope_scaling import (
    YARN_BETA_FAST,
    YARN_BETA_SLOW,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
INDEX_BYTES_MAX = 64 * 1024 * 1024
SHARDS_MAX = 1024
FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD = "lm_head.weight"
DERIVED_SUFFIX = ".rotary_emb.inv_freq"
"""Some conversions of Llama 2 store the rotary frequencies, which follow from the configuration."""


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class SafetensorsFolder:
    """One folder on disk, as a `Checkpoint`."""

    def __init__(self, folder: Path) -> None:
        """Maps the files. Raises CheckpointInvalid for what cannot be read faithfully."""
        self._folder = folder
        try:
            raw = read_config(folder)
        except ConfigInvalid as error:
            raise CheckpointInvalid(str(error)) from error
        self._files: dict[str, _TensorFile] = {}
        for file_name, listed in self._listed_tensors().items():
            file = self._opened(file_name)
            held = set(file.keys())
            if listed is not None and held != listed:
                raise CheckpointInvalid(f"{folder / file_name}: not the tensors of {INDEX_FILE}")
            self._files |= dict.fromkeys(held, file)
        self._files = {n: f for n, f in self._files.items() if not n.endswith(DERIVED_SUFFIX)}
        if raw.tie_word_embeddings:
            # Some folders store the head that they tie: the reference then ignores it.
            self._files.pop(HEAD, None)
        elif HEAD not in self._files:
            raise CheckpointInvalid(f"{folder}: no {HEAD}, and the configuration does not tie it")
        self.config = _model_config(raw, folder)

    def names(self) -> frozenset[str]:
        """Every tensor that the model computes with."""
        return frozenset(self._files)

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor in float32."""
        file = self._files.get(name)
        if file is None:
            raise CheckpointInvalid(f"{self._folder}: no tensor {name}")
        try:
            tensor = file.get_tensor(name)
        except SafetensorError as error:
            raise CheckpointInvalid(f"{self._folder}: {name}: {error}") from error
        if tensor.dtype not in FLOAT_TYPES:
            raise CheckpointInvalid(f"{self._folder}: {name} is {tensor.dtype}, not a float")
        return tensor.float()

    def _listed_tensors(self) -> dict[str, set[str] | None]:
        """The files of the folder, each with what the index says it holds; None without index."""
        path = self._folder / INDEX_FILE
        if not path.exists():
            return {SINGLE_FILE: None}
        try:
            if path.stat().st_size > INDEX_BYTES_MAX:
                raise CheckpointInvalid(f"{path}: larger than {INDEX_BYTES_MAX} bytes")
            index = msgspec.json.decode(path.read_bytes(), type=_Index)
        except OSError as error:
            raise CheckpointInvalid(f"{path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise CheckpointInvalid(f"{path}: {error}") from error
        listed: dict[str, set[str] | None] = {}
        by_file = sorted(index.weight_map.items(), key=lambda entry: entry[1])
        for file_name, entries in groupby(by_file, key=lambda entry: entry[1]):
            plain = Path(file_name).name == file_name and "\\" not in file_name
            if not plain or not file_name.endswith(".safetensors"):
                raise CheckpointInvalid(f"{path}: {file_name!r} is not a file of this folder")
            listed[file_name] = {tensor for tensor, _ in entries}
        if len(listed) > SHARDS_MAX:
            raise CheckpointInvalid(f"{path}: more than {SHARDS_MAX} files")
        return listed

    def _opened(self, name: str) -> "_TensorFile":
        path = self._folder / name
        try:
            return cast("_TensorFile", safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise CheckpointInvalid(f"{path}: {error}") from error


class _TensorFile(Protocol):
    """What we use of safetensors' file, whose stubs leave its methods untyped."""

    def keys(self) -> list[str]: ...

    def get_tensor(self, name: str) -> torch.Tensor: ...


def _model_config(raw: HuggingFaceConfig, folder: Path) -> ModelConfig:
    heads = raw.num_attention_heads
    return ModelConfig(
        architecture=raw.model_type,
        vocab_size=raw.vocab_size,
        context_tokens_max=raw.context_tokens_max,
        layers=raw.num_hidden_layers,
        hidden_size=raw.hidden_size,
        feed_forward_size=raw.intermediate_size,
        heads=heads,
        kv_heads=raw.num_key_value_heads or heads,
        head_size=raw.head_dim or raw.hidden_size // heads,
        rope_theta=raw.theta,
        norm_epsilon=raw.rms_norm_eps,
        rope_scaling=_rope_scaling(raw.rope, raw.max_position_embeddings, folder),
    )


def _rope_scaling(rope: RopeParameters, context: int, folder: Path) -> RopeScaling | None:
    match rope.kind:
        case "default":
            return None
        case "linear" if rope.factor is not None:
            return LinearScaling(rope.factor)
        case "llama3" if (
            rope.factor is not None
            and rope.low_freq_factor is not None
            and rope.high_freq_factor is not None
            and rope.original_max_position_embeddings is not None
        ):
            return Llama3Scaling(
                factor=rope.factor,
                low_frequency_factor=rope.low_freq_factor,
                high_frequency_factor=rope.high_freq_factor,
                trained_context_tokens=rope.original_max_position_embeddings,
            )
        case "yarn" if rope.factor is not None:
            return YarnScaling(
                factor=rope.factor,
                trained_context_tokens=rope.original_max_position_embeddings or context,
                beta_fast=rope.beta_fast or YARN_BETA_FAST,
                beta_slow=rope.beta_slow or YARN_BETA_SLOW,
                attention_factor=rope.attention_factor,
            )
    raise CheckpointInvalid(f"{folder}: RoPE scaling {rope.kind!r} is not supported as configured")
