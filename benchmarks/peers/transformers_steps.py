"""transformers' model with its own cache and torch's attention, greedy, one rectangular batch.

Run by `worker` with the interpreter of transformers' environment.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


class Engine:
    """One model."""

    def __init__(self, model: Path, setting: str) -> None:
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation=setting
        )
        self._model.eval()

    def steps(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[int]:
        """All prompts in one call, then one token of each per call."""
        token_ids = torch.tensor(prompts)
        cache = None
        for _ in range(new_tokens):
            with torch.inference_mode():
                output = self._model(
                    input_ids=token_ids, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
            cache = output.past_key_values
            token_ids = output.logits[:, -1].argmax(-1, keepdim=True)
            yield len(prompts)
