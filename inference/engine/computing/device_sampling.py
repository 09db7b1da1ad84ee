"""Draws the tokens of a step on the device and brings them back without waiting for it.

Must draw what `sampler` draws, whose noise keys it uses, up to float32: the logits never leave the
device, and what a draw needs goes there in one copy. Called by `cuda_runner`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
import torch

from inference.contracts import TokenLogprob
from inference.engine.computing.cuda_device import Array, Device, Download, uploaded
from inference.engine.computing.sampler import NothingAllowed, noise_key
from inference.engine.step import Drawn, SampleSpec
from kernels.logit_edits_triton import adjust_logits_triton
from kernels.token_sampling import NOTHING_ALLOWED, WORD_TOKENS, DrawRows, TokenEdits, TokenMasks
from kernels.token_sampling_triton import draw_triton


class LaunchedDraws:
    """Draws on their way: `token_ids` int64 [specs] lies on the device, for the step after."""

    def __init__(self, logits: torch.Tensor, specs: Sequence[SampleSpec], device: Device) -> None:
        """Enqueues adjusting `logits` float32 [specs, vocab_size] in place, and the draws."""
        self._logprobs = [spec.logprobs for spec in specs]
        asking = [row for row, count in enumerate(self._logprobs) if count is not None]
        edits, masks = edit_arrays(specs), mask_arrays(specs, logits.shape[1])
        plain = not edits and not masks and all(spec.temperature == 0.0 for spec in specs)
        hows = () if plain else draw_arrays(specs)
        arrays = [*edits, *masks, *hows, *([np.array(asking)] if asking else [])]
        tensors = iter(uploaded(device, arrays) if arrays else [])
        if edits or masks:
            adjust_logits_triton(
                logits,
                TokenEdits(*islice(tensors, len(edits))) if edits else None,
                TokenMasks(*islice(tensors, len(masks))) if masks else None,
            )
        if plain:
            self.token_ids = logits.argmax(-1)
        else:
            self.token_ids = draw_triton(logits, DrawRows(*islice(tensors, len(hows))))
        results = [self.token_ids]
        if asking:
            rows = next(tensors)
            logprobs = logits[rows].log_softmax(-1)
            drawn = self.token_ids[rows].clamp_min(0)[:, None]
            most = max(count for count in self._logprobs if count is not None)
            results += [logprobs.gather(1, drawn)[:, 0], *logprobs.topk(most)]
        self._results = Download(device, results)

    def read(self) -> list[Drawn]:
        """Waits for the draws. Raises NothingAllowed if a row had no token left."""
        ids, *others = (result.tolist() for result in self._results.read())
        if NOTHING_ALLOWED in ids:
            raise NothingAllowed
        answers = zip(*others, strict=True)
        return [
            Drawn(token_id, None if count is None else _logprob(token_id, count, *next(answers)))
            for token_id, count in zip(ids, self._logprobs, strict=True)
        ]


def _logprob(
    token_id: int, count: int, logprob: float, values: list[float], token_ids: list[int]
) -> TokenLogprob:
    return TokenLogprob(
        token_id, logprob, tuple(zip(token_ids[:count], values[:count], strict=True))
    )


def draw_arrays(specs: Sequence[SampleSpec]) -> tuple[Array, ...]:
    """The fields of `DrawRows`."""
    keys = [noise_key(s.seed, choice=s.choice, position=s.position) for s in specs]
    limited = [
        row
        for row, s in enumerate(specs)
        if s.temperature > 0.0 and (s.top_k > 0 or s.top_p < 1.0 or s.min_p > 0.0)
    ]
    return (
        np.array([spec.temperature for spec in specs], dtype=np.float32),
        np.array([spec.top_k for spec in specs], dtype=np.int32),
        np.array([spec.top_p for spec in specs], dtype=np.float32),
        np.array([spec.min_p for spec in specs], dtype=np.float32),
        np.array(keys, dtype=np.uint64).view(np.int64),
        np.array(limited, dtype=np.int32),
    )


def edit_arrays(specs: Sequence[SampleSpec]) -> tuple[Array, ...]:
    """The fields of `TokenEdits`; empty if no spec changes single logits."""
    edits = [(row, *_row_edits(spec)) for row, spec in enumerate(specs) if _edits_logits(spec)]
    if not edits:
        return ()
    rows = [np.full(len(token_ids), row, dtype=np.int32) for row, token_ids, *_ in edits]
    return (np.concatenate(rows), *map(np.concatenate, list(zip(*edits, strict=True))[1:]))


def mask_arrays(specs: Sequence[SampleSpec], vocab_size: int) -> tuple[Array, ...]:
    """The fields of `TokenMasks`; empty if no spec has a mask."""
    rows = [row for row, spec in enumerate(specs) if spec.allowed]
    if not rows:
        return ()
    words = -(-vocab_size // WORD_TOKENS)
    masks = [np.frombuffer(specs[row].allowed, dtype="<i4")[:words] for row in rows]
    return np.array(rows, dtype=np.int32), np.stack(masks)


def _edits_logits(spec: SampleSpec) -> bool:
    return bool(
        spec.logit_bias
        or spec.banned_ids
        or spec.repetition_penalty != 1.0
        or (spec.output_ids and (spec.presence_penalty or spec.frequency_penalty))
    )


def _row_edits(spec: SampleSpec) -> tuple[Array, Array, Array, Array]:
    """Token ids, biases, repetitions and penalties, one entry for each token."""
    biases = dict(spec.logit_bias) | dict.fromkeys(spec.banned_ids, -math.inf)
    penalties: dict[int, float] = {}
    if spec.presence_penalty or spec.frequency_penalty:
        penalties = {
            token_id: spec.presence_penalty + spec.frequency_penalty * count
            for token_id, count in Counter(spec.output_ids).items()
        }
    repeats = spec.repetition_penalty != 1.0
    seen = np.array([*spec.prompt_ids, *spec.output_ids] if repeats else [], dtype=np.int32)
    edited = np.array([*biases, *penalties], dtype=np.int32)
    token_ids = np.unique(np.concatenate([seen, edited]))
    repetitions = np.ones(len(token_ids), dtype=np.float32)
    repetitions[np.searchsorted(token_ids, seen)] = spec.repetition_penalty
    return token_ids, _placed(token_ids, biases), repetitions, _placed(token_ids, penalties)


def _placed(token_ids: Array, values: Mapping[int, float]) -> Array:
    array = np.zeros(len(token_ids), dtype=np.float32)
    array[np.searchsorted(token_ids, list(values))] = list(values.values())
    return array
