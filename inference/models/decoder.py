"""The decoder that all families share: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

A family is a `Family` value that says what it adds. One step of any mixture of prefill and decode
is one call of `hidden`; the last norm and the head run over the rows that are wanted. Built by the
loader, called by the runner; it knows neither requests nor blocks nor how weights are stored.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from inference.models.projection import Projection
from inference.models.rotary_embedding import RotaryTable
from inference.models.step_tensors import KvPool, StepTensors
from inference.models.tensor_source import TensorSource
from inference.weights.checkpoint import ModelConfig
from kernels.kv_layer import KvLayer
from kernels.operations import HeadNorms, Operations


@dataclass(frozen=True, slots=True)
class Family:
    """What sets a family apart. `architecture` is its name in checkpoints."""

    architecture: str
    qkv_bias: bool = False
    head_norms: bool = False
    """An RMS norm on each head of q and k, before the rotation."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `qkv` stacks the q, k and v rows, `gate_up` the gate and up rows."""

    attention_norm: torch.Tensor
    qkv: Projection
    head_norms: HeadNorms | None
    attention_out: Projection
    feed_forward_norm: torch.Tensor
    gate_up: Projection
    down: Projection


class Decoder:
    """The weights of one model, and the step over them."""

    def __init__(
        self, family: Family, config: ModelConfig, source: TensorSource, operations: Operations
    ) -> None:
        """Takes every tensor from `source`; raises CheckpointInvalid for a missing or odd one."""
        self.config = config
        self._operations = operations
        vocab, hidden = config.vocab_size, config.hidden_size
        self._embedding = source.take("model.embed_tokens.weight", vocab, hidden)
        self._layers = [_layer(family, config, source, index) for index in range(config.layers)]
        self._norm = source.take("model.norm.weight", hidden)
        self._head = source.head("lm_head.weight", vocab, self._embedding)
        self._rotary = RotaryTable(config, self._embedding.device)
        self.weight_bytes = source.weight_bytes

    def hidden(self, step: StepTensors, pool: KvPool) -> torch.Tensor:
        """Compute the step and fill its KV slots: [tokens, hidden_size] before the last norm."""
        operations, epsilon = self._operations, self.config.norm_epsilon
        cosines, sines = self._rotary.at(step.positions)
        residual = embedding(step.token_ids, self._embedding)
        delta: torch.Tensor | None = None
        for index, layer in enumerate(self._layers):
            if delta is None:
                normed = operations.rms_norm(residual, layer.attention_norm, epsilon)
            else:
                residual, normed = operations.add_rms_norm(
                    residual, delta, layer.attention_norm, epsilon
                )
            delta = self._attention(layer, normed, cosines, sines, step, pool.layer(index))
            residual, normed = operations.add_rms_norm(
                residual, delta, layer.feed_forward_norm, epsilon
            )
            delta = layer.down(operations.silu_mul(layer.gate_up(normed)))
        return residual if delta is None else residual + delta

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last norm over rows of `hidden`."""
        return self._operations.rms_norm(hidden, self._norm, self.config.norm_epsilon)

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Scores of what follows each row of `normed`: [rows, vocab_size] in float32."""
        return self._head(normed).float()

    def _attention(
        self,
        layer: Layer,
        normed: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        step: StepTensors,
        kv: KvLayer,
    ) -> torch.Tensor:
        qkv = layer.qkv(normed).view(normed.shape[0], -1, self.config.head_size)
        query = self._operations.rotate_and_store(
            qkv, cosines, sines, step.slots, kv, layer.head_norms
        )
        return layer.attention_out(step.attend(query, kv).flatten(1))


def _layer(family: Family, config: ModelConfig, source: TensorSource, index: int) -> Layer:
    prefix = f"model.layers.{index}"
    attention, feed_forward = f"{prefix}.self_attn", f"{prefix}.mlp"
    hidden, wide = config.hidden_size, config.feed_forward_size
    q_rows, kv_rows = config.heads * config.head_size, config.kv_heads * config.head_size
    return Layer(
        attention_norm=source.take(f"{prefix}.input_layernorm.weight", hidden),
        qkv=source.projection(
            {
                f"{attention}.q_proj.weight": q_rows,
                f"{attention}.k_proj.weight": kv_rows,
                f"{attention}.v_proj.weight": kv_rows,
            },
            hidden,
            bias=family.qkv_bias,
        ),
        head_norms=_head_norms(config, source, attention) if family.head_norms else None,
        attention_out=source.projection({f"{attention}.o_proj.weight": hidden}, q_rows),
        feed_forward_norm=source.take(f"{prefix}.post_attention_layernorm.weight", hidden),
        gate_up=source.projection(
            {f"{feed_forward}.gate_proj.weight": wide, f"{feed_forward}.up_proj.weight": wide},
            hidden,
        ),
        down=source.projection({f"{feed_forward}.down_proj.weight": hidden}, wide),
    )


def _head_norms(config: ModelConfig, source: TensorSource, attention: str) -> HeadNorms:
    return HeadNorms(
        query=source.take(f"{attention}.q_norm.weight", config.head_size),
        key=source.take(f"{attention}.k_norm.weight", config.head_size),
        epsilon=config.norm_epsilon,
    )
