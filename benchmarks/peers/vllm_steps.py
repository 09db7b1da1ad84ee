"""vLLM's engine in process, on the CPU in float32, stepped by hand.

Run by `worker` with the interpreter of vLLM's environment. Prefix caching is off, since no prompt
repeats here and hashing it would only cost.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
os.environ["VLLM_NO_USAGE_STATS"] = "1"

from vllm import LLM, SamplingParams  # vLLM reads the environment when imported.

CONTEXT_TOKENS_MAX = 2048
SEQUENCES_MAX = 32


class Engine:
    """One model."""

    def __init__(self, model: Path, setting: str) -> None:
        self._llm = LLM(
            model=str(model),
            dtype="float32",
            max_model_len=CONTEXT_TOKENS_MAX,
            max_num_seqs=SEQUENCES_MAX,
            enable_prefix_caching=False,
            enforce_eager=setting == "eager",
            disable_log_stats=True,
            seed=0,
        )
        self._requests = 0

    def steps(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[int]:
        """All prompts at once; each output of a step is one more token of its request."""
        engine = self._llm.llm_engine
        sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        for prompt in prompts:
            self._requests += 1
            engine.add_request(str(self._requests), {"prompt_token_ids": list(prompt)}, sampling)
        while engine.has_unfinished_requests():
            outputs = engine.step()
            yield len(outputs)
