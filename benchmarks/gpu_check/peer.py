"""transformers, where it is installed: the same toys' answers, and `generate` at the same shapes.

Its weights are drawn by itself; a static batch, bfloat16, its own choice of attention.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from benchmarks.gpu_check import models
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import ServingSizes
from benchmarks.gpu_check.timing import Place
from inference.weights.checkpoint import ModelConfig
from inference.weights.rope_scaling import Llama3Scaling

CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
}


def transformers_if_installed() -> ModuleType | None:
    """The library."""
    try:
        import transformers
    except ImportError:
        return None
    library: ModuleType = transformers
    return library


def hugging_face_config(library: ModuleType, config: ModelConfig, *, tied: bool) -> Any:
    """Our shape in its words. It takes the older names of the rotary fields in every version."""
    rope = config.rope_scaling
    scaling = None
    if isinstance(rope, Llama3Scaling):
        scaling = {
            "rope_type": "llama3",
            "rope_theta": config.rope_theta,
            "factor": rope.factor,
            "low_freq_factor": rope.low_frequency_factor,
            "high_freq_factor": rope.high_frequency_factor,
            "original_max_position_embeddings": rope.trained_context_tokens,
        }
    fields = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.context_tokens_max,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": tied,
        "sliding_window": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if config.architecture == "llama":
        del fields["sliding_window"]
    return getattr(library, CLASSES[config.architecture][0])(**fields)


def greedy_answers(
    library: ModuleType,
    config: ModelConfig,
    tensors: Mapping[str, torch.Tensor],
    prompts: Sequence[Sequence[int]],
    tokens: int,
) -> list[list[int]]:
    """Its greedy answers in float32 on the CPU, each token by a pass over all before it."""
    hugging_face = hugging_face_config(library, config, tied=False)
    model = getattr(library, CLASSES[config.architecture][1])(hugging_face).float().eval()
    model.load_state_dict(dict(tensors), strict=True)
    found = []
    with torch.inference_mode():
        for prompt in prompts:
            ids = list(prompt)
            for _ in range(tokens):
                ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
            found.append(ids[len(prompt) :])
    return found


def run(section: Section, place: Place, sizes: ServingSizes) -> None:
    """Decoding rates by `generate`, the models' most telling stream counts first."""
    library = transformers_if_installed()
    if library is None:
        section.note("transformers", "not installed: nothing to compare with")
        return
    section.note("transformers", str(library.__version__))
    for name in ("1B", "8B"):
        section.attempt(name, partial(measure_model, section, place, sizes, library, name))
        place.release()


def measure_model(
    section: Section, place: Place, sizes: ServingSizes, library: ModuleType, name: str
) -> None:
    """One model at each number of streams."""
    config = models.llama_config(name, layers=sizes.layers, shrink=sizes.shrink)
    hugging_face = hugging_face_config(library, config, tied=name in models.TIED)
    # Drawn in bfloat16 where they stay: through float32 on the CPU takes a minute.
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with place.device:
            model = library.LlamaForCausalLM(hugging_face).eval()
    finally:
        torch.set_default_dtype(default)
    for streams in sizes.peer_streams:
        what = f"{name} bfloat16, {streams} streams"
        measure = partial(measure_rate, section, place, sizes, model, streams, what)
        section.attempt(what, measure)
        place.release()


@torch.inference_mode()
def measure_rate(
    section: Section, place: Place, sizes: ServingSizes, model: Any, streams: int, what: str
) -> None:
    """Tokens per second after the first token, at the context that ours is measured at."""
    prompts = torch.randint(0, model.config.vocab_size, (streams, sizes.prompt)).to(place.device)

    def seconds(tokens: int) -> float:
        place.wait()
        began = time.perf_counter()
        output = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
        )
        place.wait()
        assert output.shape == (streams, sizes.prompt + tokens)
        return time.perf_counter() - began

    seconds(2)
    first, all_of_them = seconds(1), seconds(1 + sizes.peer_steps)
    taken = max(all_of_them - first, 1e-9)
    section.figure(what, streams * sizes.peer_steps / taken, "tokens/s")
