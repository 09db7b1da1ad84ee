"""The Llama family: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.

One step of any mixture of prefill and decode is one call of `hidden`. Built by the loader, called
by the runner; it knows neither requests nor blocks. Follows `LlamaForCausalLM` of Hugging Face
transformers, whose greedy answers are the goldens of its tests.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding, rms_norm, silu

from inference.models.projection import product_of
from inference.models.step_tensors import KvPool, StepTensors
from inference.models.tensor_source import TensorSource
from inference.weights.checkpoint import ModelConfig


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """One block's weights. `qkv` stacks the q, k and v rows, `gate_up` the gate and up rows."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    attention_out: torch.Tensor
    feed_forward_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Llama:
    """The weights of one model, and the step over them."""

    def __init__(self, config: ModelConfig, source: TensorSource) -> None:
        """Takes every tensor from `source`; raises CheckpointInvalid for a missing or odd one."""
        self.config = config
        hidden = config.hidden_size
        self._embedding = source.take("model.embed_tokens.weight", config.vocab_size, hidden)
        self._layers = [_layer(config, source, index) for index in range(config.layers)]
        self._norm = source.take("model.norm.weight", hidden)
        self._head = (
            source.take("lm_head.weight", config.vocab_size, hidden)
            if source.has("lm_head.weight")
            else self._embedding
        )
        self._cosines, self._sines = _rotations(config, self._embedding.device)

    def hidden(self, step: StepTensors, pool: KvPool) -> torch.Tensor:
        """Compute the step and fill its KV slots: [tokens, hidden_size] before the last norm."""
        hidden = embedding(step.token_ids, self._embedding)
        cosines, sines = self._cosines[step.positions], self._sines[step.positions]
        for index, layer in enumerate(self._layers):
            normed = self._normed(hidden, layer.attention_norm)
            hidden = hidden + self._attention(index, layer, normed, cosines, sines, step, pool)
            normed = self._normed(hidden, layer.feed_forward_norm)
            gate, up = product_of(normed, layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + product_of(silu(gate) * up, layer.down)
        return hidden

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last norm over rows of `hidden`."""
        return self._normed(hidden, self._norm)

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Scores of what follows each row of `normed`: [rows, vocab_size] in float32."""
        return product_of(normed, self._head).float()

    def _normed(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(hidden, weight.shape, weight, self.config.norm_epsilon)

    def _attention(
        self,
        index: int,
        layer: LlamaLayer,
        normed: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        step: StepTensors,
        pool: KvPool,
    ) -> torch.Tensor:
        config = self.config
        rotated_heads = config.heads + config.kv_heads
        stacked = product_of(normed, layer.qkv).view(normed.shape[0], -1, config.head_size)
        rotated = _rotated(stacked[:, :rotated_heads], cosines, sines)
        kv = pool.layer(index)
        new_keys, new_values = rotated[:, config.heads :], stacked[:, rotated_heads:]
        for stored, rows in ((kv.keys, new_keys), (kv.values, new_values)):
            stored.flatten(1, 2).index_copy_(1, step.slots, rows.transpose(0, 1))
        attended = step.attend(rotated[:, : config.heads], kv)
        return product_of(attended.flatten(1), layer.attention_out)


def _layer(config: ModelConfig, source: TensorSource, index: int) -> LlamaLayer:
    prefix = f"model.layers.{index}"
    hidden, wide = config.hidden_size, config.feed_forward_size
    q_rows, kv_rows = config.heads * config.head_size, config.kv_heads * config.head_size
    attention = f"{prefix}.self_attn"
    return LlamaLayer(
        attention_norm=source.take(f"{prefix}.input_layernorm.weight", hidden),
        qkv=source.take_stacked(
            {
                f"{attention}.q_proj.weight": q_rows,
                f"{attention}.k_proj.weight": kv_rows,
                f"{attention}.v_proj.weight": kv_rows,
            },
            hidden,
        ),
        attention_out=source.take(f"{attention}.o_proj.weight", hidden, q_rows),
        feed_forward_norm=source.take(f"{prefix}.post_attention_layernorm.weight", hidden),
        gate_up=source.take_stacked(
            {f"{prefix}.mlp.gate_proj.weight": wide, f"{prefix}.mlp.up_proj.weight": wide}, hidden
        ),
        down=source.take(f"{prefix}.mlp.down_proj.weight", hidden, wide),
    )


def _rotations(config: ModelConfig, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines by position, each [context, 1, head_size / 2] in float32."""
    exponents = torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size
    frequencies = 1.0 / config.rope_theta**exponents
    positions = torch.arange(config.context_tokens_max, dtype=torch.float32)
    angles = torch.outer(positions, frequencies)[:, None]
    return angles.cos().to(device), angles.sin().to(device)


def _rotated(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions on [tokens, heads, head_size], pairs half a head apart."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat(
        (first * cosines - second * sines, second * cosines + first * sines), dim=-1
    ).to(heads.dtype)
