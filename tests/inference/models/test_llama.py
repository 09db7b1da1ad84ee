"""The Llama family computes what a plain, unbatched, uncached transcription of the paper does."""

import math
from pathlib import Path

import pytest
import torch

from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.weights.gguf_file import GgufFile
from tests.inference.models.stepping import load_on_cpu, pool_for, step_logits
from tests.inference.models.toy_gguf import ToyShape, toy_tensors, write_toy

TOY = ToyShape()
HEAD = TOY.hidden // TOY.heads


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    path: Path = tmp_path_factory.mktemp("toy") / "toy.gguf"
    write_toy(path, TOY)
    return load_on_cpu(GgufFile(path))


def plain_logits(token_ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary], head by head and pair by pair."""
    weights = toy_tensors(TOY)
    hidden = weights["model.embed_tokens.weight"][token_ids]

    def norm(rows: torch.Tensor, name: str) -> torch.Tensor:
        scale = (rows.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
        return rows * scale * weights[name]

    def rotate(head: torch.Tensor) -> torch.Tensor:
        rotated = torch.empty_like(head)
        for position in range(head.shape[0]):
            for pair in range(HEAD // 2):
                angle = position * 10_000.0 ** (-2 * pair / HEAD)
                x, y = head[position, pair], head[position, pair + HEAD // 2]
                rotated[position, pair] = x * math.cos(angle) - y * math.sin(angle)
                rotated[position, pair + HEAD // 2] = y * math.cos(angle) + x * math.sin(angle)
        return rotated

    for layer in range(TOY.layers):
        prefix = f"model.layers.{layer}"
        normed = norm(hidden, f"{prefix}.input_layernorm.weight")
        q, k, v = (
            normed @ weights[f"{prefix}.self_attn.{name}_proj.weight"].T for name in ("q", "k", "v")
        )
        outputs = []
        for head in range(TOY.heads):
            kv = head // (TOY.heads // TOY.kv_heads)
            query = rotate(q[:, head * HEAD : (head + 1) * HEAD])
            key = rotate(k[:, kv * HEAD : (kv + 1) * HEAD])
            scores = query @ key.T / math.sqrt(HEAD)
            scores += torch.full_like(scores, -math.inf).triu(1)
            outputs.append(scores.softmax(-1) @ v[:, kv * HEAD : (kv + 1) * HEAD])
        attended = torch.cat(outputs, -1) @ weights[f"{prefix}.self_attn.o_proj.weight"].T
        hidden = hidden + attended
        normed = norm(hidden, f"{prefix}.post_attention_layernorm.weight")
        gate = normed @ weights[f"{prefix}.mlp.gate_proj.weight"].T
        up = normed @ weights[f"{prefix}.mlp.up_proj.weight"].T
        activated = gate * torch.sigmoid(gate) * up
        hidden = hidden + activated @ weights[f"{prefix}.mlp.down_proj.weight"].T
    return norm(hidden, "model.norm.weight") @ weights["lm_head.weight"].T


def test_a_whole_prompt(model: Decoder) -> None:
    prompt = [(7 * index) % TOY.vocab_size for index in range(40)]

    logits = step_logits(model, pool_for(model), [SequenceStep("a", prompt, 0, [5, 2, 6])])

    assert torch.allclose(logits, plain_logits(prompt), atol=1e-4)


def test_a_prompt_in_pieces_beside_another(model: Decoder) -> None:
    first = [(5 * index + 1) % TOY.vocab_size for index in range(33)]
    second = [(11 * index + 3) % TOY.vocab_size for index in range(20)]
    kv = pool_for(model)
    rows: list[torch.Tensor] = []
    for start, end in ((0, 10), (10, 11), (11, 16), (16, 33)):
        steps = [
            SequenceStep("first", first[start:end], start, [1, 4, 7]),
            SequenceStep("second", second[start:end], start, [3, 0]),
        ]
        steps = [step for step in steps if step.token_ids]
        rows.append(step_logits(model, kv, steps)[: end - start])

    assert torch.allclose(torch.cat(rows), plain_logits(first), atol=1e-4)


def test_a_fresh_pool_is_all_zeros(model: Decoder) -> None:
    kv = pool_for(model)

    assert not any(
        bool(tensor.any())
        for index in range(TOY.layers)
        for tensor in (kv.layer(index).keys, kv.layer(index).values)
    )
