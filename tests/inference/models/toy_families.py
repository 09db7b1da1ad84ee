"""Tiny seeded models of each family, written as a Hugging Face folder or as a GGUF file.

The script that makes the goldens and the tests that compare with them build the same weights here,
so none need to be stored.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file

from tests.inference.models.toy_gguf import gguf_name, permuted

LAYERS, HIDDEN, FEED_FORWARD, VOCABULARY, CONTEXT = 3, 64, 96, 120, 256
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}


@dataclass(frozen=True, slots=True)
class Toy:
    """One model: `config` is what its config.json says beyond the common shape."""

    name: str
    seed: int
    config: dict[str, Any]  # the file's own fields

    @property
    def fields(self) -> dict[str, Any]:
        """The whole config.json."""
        return SHAPE | self.config

    @property
    def head_size(self) -> int:
        return int(self.fields.get("head_dim", HIDDEN // self.fields["num_attention_heads"]))


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_SCALING = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
TOYS = (
    Toy("llama2", 1, {"model_type": "llama", "num_key_value_heads": 4, "rope_theta": 10_000.0}),
    Toy(
        "llama3",
        2,
        {
            "model_type": "llama",
            "tie_word_embeddings": True,
            "rope_theta": 5_000.0,
            "rope_scaling": LLAMA3_SCALING,
        },
    ),
    Toy(
        "llama-linear",
        3,
        {
            "model_type": "llama",
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        },
    ),
    Toy("mistral", 4, {"model_type": "mistral", "head_dim": 32, "sliding_window": None}),
    Toy(
        "qwen2",
        15,
        {
            "model_type": "qwen2",
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
            "use_sliding_window": False,
            "sliding_window": 32,
        },
    ),
    Toy(
        "qwen2-yarn",
        6,
        {"model_type": "qwen2", "rope_theta": 1_000.0, "rope_scaling": YARN_SCALING},
    ),
    Toy(
        "qwen3",
        47,
        {
            "model_type": "qwen3",
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_theta": 1_000_000.0,
        },
    ),
    Toy("qwen3-untied", 18, {"model_type": "qwen3", "head_dim": 16, "rope_theta": 10_000.0}),
)


def family_tensors(toy: Toy) -> dict[str, torch.Tensor]:
    """Random weights by Hugging Face name, the head left out where it is tied."""
    generator = torch.Generator().manual_seed(toy.seed)
    fields, head = toy.fields, toy.head_size
    q_rows, kv_rows = (fields[f"num_{kind}_heads"] * head for kind in ("attention", "key_value"))
    sizes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (fields["vocab_size"], HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    if not fields.get("tie_word_embeddings"):
        sizes["lm_head.weight"] = (fields["vocab_size"], HIDDEN)
    for layer in range(LAYERS):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            sizes[f"{attention}.{name}_proj.weight"] = (rows, HIDDEN)
            if fields["model_type"] == "qwen2":
                sizes[f"{attention}.{name}_proj.bias"] = (rows,)
        if fields["model_type"] == "qwen3":
            sizes[f"{attention}.q_norm.weight"] = sizes[f"{attention}.k_norm.weight"] = (head,)
        sizes[f"{attention}.o_proj.weight"] = (HIDDEN, q_rows)
        sizes[f"{mlp}.gate_proj.weight"] = sizes[f"{mlp}.up_proj.weight"] = (FEED_FORWARD, HIDDEN)
        sizes[f"{mlp}.down_proj.weight"] = (HIDDEN, FEED_FORWARD)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            sizes[f"model.layers.{layer}.{norm}.weight"] = (HIDDEN,)
    return {
        name: torch.randn(size, generator=generator) * 0.2 + (1.0 if "norm" in name else 0.0)
        for name, size in sizes.items()
    }


def write_folder(
    folder: Path,
    toy: Toy,
    *,
    shards: int = 1,
    dtype: torch.dtype = torch.float32,
    tensors: dict[str, torch.Tensor] | None = None,
) -> None:
    """config.json and safetensors, in `shards` files with an index where more than one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(toy.fields))
    weights = {name: tensor.to(dtype) for name, tensor in (tensors or family_tensors(toy)).items()}
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file_name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        names = sorted(weights)[shard::shards]
        save_file({name: weights[name] for name in names}, folder / file_name)
        weight_map |= dict.fromkeys(names, file_name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_family_gguf(path: Path, toy: Toy) -> None:
    """The same model as the converters of llama.cpp write it, in float32."""
    fields = toy.fields
    permutes = fields["model_type"] in ("llama", "mistral")
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    writer = gguf.GGUFWriter(path, "llama" if permutes else fields["model_type"])
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(fields["num_attention_heads"])
    writer.add_head_count_kv(fields["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(fields["rms_norm_eps"])
    writer.add_key_length(toy.head_size)
    writer.add_value_length(toy.head_size)
    theta = rope.get("rope_theta") or fields.get("rope_theta", 10_000.0)
    writer.add_rope_freq_base(theta)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        divisors = torch.tensor(llama3_divisors(toy.head_size, theta, rope))
        writer.add_tensor("rope_freqs.weight", divisors.numpy())
    for name, tensor in family_tensors(toy).items():
        heads = {"q_proj": "attention", "k_proj": "key_value"}.get(name.split(".")[-2])
        stored = tensor
        if permutes and heads is not None:
            stored = permuted(tensor, fields[f"num_{heads}_heads"])
        writer.add_tensor(gguf_name(name), stored.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama3_divisors(head_size: int, theta: float, rope: dict[str, Any]) -> list[float]:
    """What each frequency is divided by, pair by pair, in terms of wave lengths."""
    context = rope["original_max_position_embeddings"]
    longest, shortest = context / rope["low_freq_factor"], context / rope["high_freq_factor"]
    divisors = []
    for pair in range(head_size // 2):
        wave = 2 * math.pi * theta ** (2 * pair / head_size)
        if wave < shortest:
            divisors.append(1.0)
        elif wave > longest:
            divisors.append(rope["factor"])
        else:
            span = rope["high_freq_factor"] - rope["low_freq_factor"]
            smooth = (context / wave - rope["low_freq_factor"]) / span
            divisors.append(1.0 / ((1 - smooth) / rope["factor"] + smooth))
    return divisors
