"""Writes a tiny seeded Llama as a GGUF file, permuted as the real converters do it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch

from inference.weights.gguf_file import LAYER_NAMES, TOP_NAMES


@dataclass(frozen=True, slots=True)
class ToyShape:
    """Two layers, grouped heads, an untied head."""

    vocab_size: int = 96
    context: int = 128
    layers: int = 2
    hidden: int = 64
    feed_forward: int = 96
    heads: int = 4
    kv_heads: int = 2


def toy_tensors(shape: ToyShape) -> dict[str, torch.Tensor]:
    """Random weights by Hugging Face name."""
    generator = torch.Generator().manual_seed(11)
    head = shape.hidden // shape.heads
    matrices = {
        "self_attn.q_proj": (shape.hidden, shape.hidden),
        "self_attn.k_proj": (shape.kv_heads * head, shape.hidden),
        "self_attn.v_proj": (shape.kv_heads * head, shape.hidden),
        "self_attn.o_proj": (shape.hidden, shape.hidden),
        "mlp.gate_proj": (shape.feed_forward, shape.hidden),
        "mlp.up_proj": (shape.feed_forward, shape.hidden),
        "mlp.down_proj": (shape.hidden, shape.feed_forward),
    }
    sizes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocab_size, shape.hidden),
        "model.norm.weight": (shape.hidden,),
        "lm_head.weight": (shape.vocab_size, shape.hidden),
    }
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        sizes |= {f"{prefix}.{name}.weight": size for name, size in matrices.items()}
        sizes[f"{prefix}.input_layernorm.weight"] = (shape.hidden,)
        sizes[f"{prefix}.post_attention_layernorm.weight"] = (shape.hidden,)
    return {
        name: torch.randn(size, generator=generator) * 0.2 + (1.0 if len(size) == 1 else 0.0)
        for name, size in sizes.items()
    }


def write_toy(
    path: Path,
    shape: ToyShape,
    *,
    architecture: str = "llama",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    rope_scaling: str | None = None,
    leave_out: str | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    packed: Mapping[str, tuple[np.ndarray, gguf.GGMLQuantizationType]] | None = None,
    metadata: Mapping[str, int] | None = None,
) -> None:
    """The toy at `path`; matrices in `kind`, tensors left out or added by their GGUF names, those
    in `packed` as the bytes of their type."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(shape.context)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "b"])
    if rope_scaling is not None:
        writer.add_string(f"{architecture}.rope.scaling.type", rope_scaling)
    for name, tensor in toy_tensors(shape).items():
        stored_name = gguf_name(name)
        if stored_name == leave_out:
            continue
        heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
        values = (tensor if heads is None else permuted(tensor, heads)).numpy()
        if values.ndim == 2:
            values = gguf.quantize(values, kind)
            writer.add_tensor(stored_name, values, raw_dtype=kind)
        else:
            writer.add_tensor(stored_name, values)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    for name, (blocks, block_kind) in (packed or {}).items():
        writer.add_tensor(name, blocks, raw_dtype=block_kind)
    for key, value in (metadata or {}).items():
        writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head interleaved from its two halves, as the converters of Llama do."""
    first, second = weight.view(heads, 2, -1, weight.shape[1]).unbind(1)
    return torch.stack((first, second), dim=2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor."""
    tops = {theirs: ours for ours, theirs in TOP_NAMES.items()}
    if name in tops:
        return tops[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}." + {theirs: ours for ours, theirs in LAYER_NAMES.items()}[rest]
