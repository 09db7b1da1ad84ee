"""llama.cpp through its batch interface, since the Python class on top of it is single-stream.

Run by `worker` with the interpreter of llama.cpp's environment. One KV buffer for all sequences
("unified") or one for each ("split"); flash attention on, one thread.
"""

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp as llama
import numpy as np

PREFILL_TOKENS_MAX = 512
"""llama.cpp's own default for the tokens computed at once."""
CONTEXT_STEP_TOKENS = 256
"""llama.cpp pads contexts to multiples of this."""


class Engine:
    """One model; each call of `steps` has a context of its own."""

    def __init__(self, model: Path, setting: str) -> None:
        llama.llama_backend_init()
        self._unified = setting == "unified"
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = llama.llama_model_load_from_file(str(model).encode(), parameters)
        assert self._model, f"llama.cpp cannot load {model}"
        vocabulary = llama.llama_model_get_vocab(self._model)
        self._vocab_size = llama.llama_vocab_n_tokens(vocabulary)

    def steps(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[int]:
        """All prompts in one call, then one token of each per call."""
        streams, length = len(prompts), len(prompts[0])
        context = self._context(streams, length + new_tokens)
        batch = llama.llama_batch_init(streams * length, 0, 1)
        rows = [
            (token, position, stream, position == length - 1)
            for stream, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        for position in range(length, length + new_tokens):
            drawn = self._drawn(context, batch, rows)
            yield streams
            rows = [(token, position, stream, True) for stream, token in enumerate(drawn)]
        llama.llama_batch_free(batch)
        llama.llama_free(context)

    def _context(self, streams: int, tokens: int) -> llama.llama_context_p:
        parameters = llama.llama_context_default_params()
        padded = -(-tokens // CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS
        parameters.n_ctx = streams * padded
        parameters.n_seq_max = streams
        parameters.n_batch = streams * padded
        parameters.n_ubatch = PREFILL_TOKENS_MAX
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.kv_unified = self._unified
        context = llama.llama_init_from_model(self._model, parameters)
        assert context, "llama.cpp cannot make a context"
        return context

    def _drawn(
        self,
        context: llama.llama_context_p,
        batch: llama.llama_batch,
        rows: Sequence[tuple[int, int, int, bool]],
    ) -> list[int]:
        """Computes rows of (token, position, sequence, whether one is drawn after it)."""
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, draws) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = draws
        status = llama.llama_decode(context, batch)
        assert status == 0, f"llama_decode says {status}"
        count = sum(row[3] for row in rows)
        pointer = ctypes.cast(llama.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        logits = np.ctypeslib.as_array(pointer, shape=(count, self._vocab_size))
        return [int(token) for token in logits.argmax(-1)]
