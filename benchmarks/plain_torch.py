"""The simplest batched torch loop over the same weights: what our engine is measured against.

One padded batch, contiguous preallocated KV, torch's own attention, greedy, no pages, no requests.
Run it alone for its figures, or through `benchmarks.engine_decode` beside ours.
"""

import time

import torch
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from benchmarks.model import loaded_bundle
from inference.tokenizer.bundle import Bundle
from inference.weights.gguf_file import GgufFile


class PlainModel:
    """Llama for one rectangular batch."""

    def __init__(self, bundle: Bundle) -> None:
        checkpoint = GgufFile(bundle.folder / bundle.weights_file)
        self.config = checkpoint.config
        self.weights = {name: checkpoint.tensor(name) for name in checkpoint.names()}
        size = self.config.head_size
        frequencies = 1.0 / self.config.rope_theta ** (torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(self.config.context_tokens_max).float(), frequencies)
        self.cosines, self.sines = angles.cos(), angles.sin()

    def cache(self, streams: int, tokens_max: int) -> list[torch.Tensor]:
        """One [2, streams, kv_heads, tokens, head_size] per layer."""
        shape = (2, streams, self.config.kv_heads, tokens_max, self.config.head_size)
        return [torch.zeros(shape) for _ in range(self.config.layers)]

    def step(self, token_ids: torch.Tensor, start: int, cache: list[torch.Tensor]) -> torch.Tensor:
        """The next greedy token of each stream after `token_ids` [streams, tokens]."""
        streams, tokens = token_ids.shape
        end = start + tokens
        hidden = embedding(token_ids, self.weights["model.embed_tokens.weight"])
        for layer, kv in enumerate(cache):
            prefix = f"model.layers.{layer}"
            normed = self._norm(hidden, f"{prefix}.input_layernorm")
            q, k, v = (
                linear(normed, self.weights[f"{prefix}.self_attn.{name}_proj.weight"])
                .view(streams, tokens, -1, self.config.head_size)
                .transpose(1, 2)
                for name in ("q", "k", "v")
            )
            kv[0, :, :, start:end] = self._rotated(k, start, end)
            kv[1, :, :, start:end] = v
            attended = scaled_dot_product_attention(
                self._rotated(q, start, end),
                kv[0, :, :, :end],
                kv[1, :, :, :end],
                is_causal=tokens > 1,
                enable_gqa=True,
            )
            merged = attended.transpose(1, 2).flatten(2)
            hidden = hidden + linear(merged, self.weights[f"{prefix}.self_attn.o_proj.weight"])
            normed = self._norm(hidden, f"{prefix}.post_attention_layernorm")
            gate = linear(normed, self.weights[f"{prefix}.mlp.gate_proj.weight"])
            up = linear(normed, self.weights[f"{prefix}.mlp.up_proj.weight"])
            down = self.weights[f"{prefix}.mlp.down_proj.weight"]
            hidden = hidden + linear(silu(gate) * up, down)
        last = self._norm(hidden[:, -1], "model.norm")
        return linear(last, self.weights["model.embed_tokens.weight"]).argmax(-1, keepdim=True)

    def _norm(self, hidden: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(
            hidden, hidden.shape[-1:], self.weights[f"{name}.weight"], self.config.norm_epsilon
        )

    def _rotated(self, heads: torch.Tensor, start: int, end: int) -> torch.Tensor:
        first, second = heads.chunk(2, dim=-1)
        cosines, sines = self.cosines[start:end], self.sines[start:end]
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


@torch.inference_mode()
def decode_step_s(
    model: PlainModel, streams: int, *, context_tokens: int, new_tokens: int
) -> list[float]:
    """Processor seconds of each of `new_tokens` decode steps after a prompt of `context_tokens`."""
    cache = model.cache(streams, context_tokens + new_tokens)
    prompt = torch.randint(model.config.vocab_size, (streams, context_tokens))
    token_ids = model.step(prompt, 0, cache)
    times = []
    for position in range(context_tokens, context_tokens + new_tokens):
        began = time.thread_time()
        token_ids = model.step(token_ids, position, cache)
        times.append(time.thread_time() - began)
    return times


def main() -> None:
    """Prints tokens per second at 1 and 16 streams."""
    torch.set_num_threads(1)
    model = PlainModel(loaded_bundle())
    for streams in (1, 16):
        times = sorted(decode_step_s(model, streams, context_tokens=64, new_tokens=64))
        print(f"plain torch, {streams} stream(s): {streams / times[len(times) // 2]:.1f} tokens/s")


if __name__ == "__main__":
    main()
