"""Seeded models that no checkpoint holds: toys of each family, and the shapes of Llama 1B and 8B.

Weights are drawn on the device they are for, so eight billion of them take a second. The runners
are those that the server uses; nothing here reads a file.
"""

import zlib
from collections.abc import Mapping, Sequence

import torch

from benchmarks.gpu_check.timing import Place
from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.cuda_runner import CudaRunner, make_cuda_runner
from inference.engine.computing.runner import TorchRunner, attention_batch
from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.models.loader import FAMILIES, load_model
from inference.models.projection import WeightFormat
from inference.models.step_tensors import KvFormat, KvPool
from inference.weights.checkpoint import ModelConfig
from inference.weights.rope_scaling import Llama3Scaling
from kernels.operations_triton import TritonOperations
from kernels.paged_attention import Attend
from kernels.paged_attention_triton import plan_triton_attention
from kernels.quantized_linear import dequantize, quantize_int4, quantize_int8

HEAD = "lm_head.weight"
TIED = frozenset({"1B"})
"""Models whose head is their embedding."""
SCALE = 0.2
"""Of the toys' weights: their answers neither repeat one token nor hang on rounding."""
QUANTIZERS = {WeightFormat.INT8: quantize_int8, WeightFormat.INT4: quantize_int4}


def toy_config(architecture: str) -> ModelConfig:
    """A toy of a family; heads of 64 share, so the kernels are those of real models."""
    return ModelConfig(
        architecture=architecture,
        vocab_size=320,
        context_tokens_max=256,
        layers=3,
        hidden_size=128,
        feed_forward_size=192,
        heads=4,
        kv_heads=2,
        head_size=32 if architecture == "qwen3" else 64,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 64) if architecture == "llama" else None,
    )


def llama_config(name: str, *, layers: int | None = None, shrink: int = 1) -> ModelConfig:
    """The shape of Llama 3.2 "1B" or Llama 3.1 "8B", or a smaller one of its proportions."""
    small = name == "1B"
    return ModelConfig(
        architecture="llama",
        vocab_size=128256 // shrink**2,
        context_tokens_max=131072 // shrink,
        layers=layers or (16 if small else 32),
        hidden_size=(2048 if small else 4096) // shrink,
        feed_forward_size=(8192 if small else 14336) // shrink,
        heads=32 // min(shrink, 8),
        kv_heads=8 // min(shrink, 8),
        head_size=(64 if small else 128) // min(shrink, 4),
        rope_theta=500_000.0,
        norm_epsilon=1e-5,
        rope_scaling=Llama3Scaling(32.0 if small else 8.0, 1.0, 4.0, 8192 // shrink),
    )


def tensor_shapes(config: ModelConfig, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model by its Hugging Face name."""
    family = FAMILIES[config.architecture]
    hidden, wide, head = config.hidden_size, config.feed_forward_size, config.head_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not tied:
        shapes[HEAD] = (config.vocab_size, hidden)
    for layer in range(config.layers):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
            shapes[f"{attention}.{name}_proj.weight"] = (heads * head, hidden)
            if family.qkv_bias:
                shapes[f"{attention}.{name}_proj.bias"] = (heads * head,)
        if family.head_norms:
            shapes[f"{attention}.q_norm.weight"] = shapes[f"{attention}.k_norm.weight"] = (head,)
        shapes[f"{attention}.o_proj.weight"] = (hidden, config.heads * head)
        shapes[f"{mlp}.gate_proj.weight"] = shapes[f"{mlp}.up_proj.weight"] = (wide, hidden)
        shapes[f"{mlp}.down_proj.weight"] = (hidden, wide)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{norm}.weight"] = (hidden,)
    return shapes


def toy_tensors(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Weights that bfloat16 holds exactly, so that every runner has the same; on the CPU."""
    generator = torch.Generator().manual_seed(zlib.crc32(config.architecture.encode()))
    return {
        name: torch.randn(shape, generator=generator)
        .mul(SCALE)
        .add("norm" in name)
        .bfloat16()
        .float()
        for name, shape in tensor_shapes(config, tied=False).items()
    }


def as_quantized(
    tensors: Mapping[str, torch.Tensor], weight_format: WeightFormat
) -> dict[str, torch.Tensor]:
    """What the weights are once a model has had them in that format; its head has eight bits
    where the other matrices have four."""
    if weight_format not in QUANTIZERS:
        return dict(tensors)
    quantize = QUANTIZERS[weight_format]
    return {
        name: dequantize(quantize(tensor))
        if name.endswith("_proj.weight")
        else dequantize(quantize_int8(tensor))
        if name == HEAD
        else tensor
        for name, tensor in tensors.items()
    }


class TensorCheckpoint:
    """Implements `inference.weights.checkpoint.Checkpoint` over tensors at hand."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        self.config = config
        self._tensors = tensors

    def names(self) -> frozenset[str]:
        """Every tensor."""
        return frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """One of them."""
        return self._tensors[name]


class DrawnCheckpoint:
    """A checkpoint whose tensors are drawn where they are used, in bfloat16."""

    def __init__(self, config: ModelConfig, device: torch.device, *, tied: bool) -> None:
        self.config = config
        self._device = device
        self._shapes = tensor_shapes(config, tied=tied)

    def names(self) -> frozenset[str]:
        """Every tensor."""
        return frozenset(self._shapes)

    def tensor(self, name: str) -> torch.Tensor:
        """Drawn anew; norms are all ones, and what matrices return is as large as what they get."""
        shape = self._shapes[name]
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16, device=self._device)
        drawn = torch.randn(shape, dtype=torch.bfloat16, device=self._device)
        return drawn.mul_(shape[1] ** -0.5)


def drawn_model(
    config: ModelConfig, place: Place, weight_format: WeightFormat, *, tied: bool
) -> Decoder:
    """A model in bfloat16 on the device, its matrices in the given format."""
    torch.manual_seed(1)
    return load_model(
        DrawnCheckpoint(config, place.device, tied=tied),
        operations=TritonOperations(),
        device=place.device,
        dtype=torch.bfloat16,
        weight_format=weight_format,
    )


def pool_for(config: ModelConfig, blocks: int, kv_format: KvFormat, device: torch.device) -> KvPool:
    """An empty pool."""
    return KvPool(
        layers=config.layers,
        kv_heads=config.kv_heads,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        head_size=config.head_size,
        dtype=kv_format.dtype,
        device=device,
    )


def runner_for(model: Decoder, pool: KvPool, place: Place, running_max: int) -> CudaRunner:
    """The runner for CUDA; in a dry run, over the host in the place of a GPU."""
    if place.is_gpu:
        return make_cuda_runner(model, pool, cache_key=b"", running_max=running_max)
    from tests.inference.engine.computing.host_device import HostDevice

    return CudaRunner(model, pool, cache_key=b"", running_max=running_max, device=HostDevice())


class EagerRunner(TorchRunner):
    """The runner without graphs, over the attention of GPUs wherever it runs."""

    def _attend(self, steps: Sequence[SequenceStep]) -> Attend:
        return plan_triton_attention(attention_batch(steps), self._device)
