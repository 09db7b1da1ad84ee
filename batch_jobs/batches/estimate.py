"""How many prompt tokens an input holds, about: from a sample of its requests and from its bytes.

Pure but for the tokenizer it is given. Called by validation, for the cap on enqueued tokens.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batch_jobs.batches.lines import prompt_of

SAMPLES_MAX = 64
TEXT_CHARS_MAX = 16 * 1024
"""Of one sample: what is beyond is taken to be like it."""


@dataclass(frozen=True, slots=True)
class _Sample:
    text: str
    """Its beginning."""
    text_chars: int
    ids: int
    line_bytes: int


@dataclass(slots=True)
class TokenEstimate:
    """Takes every line's size and, evenly over the input, some requests to count the tokens of."""

    _stride: int = 1
    _lines: int = 0
    _bytes: int = 0
    _samples: list[_Sample] = field(default_factory=list)

    def add(self, body: dict[str, Any], line_bytes: int) -> None:
        """One more line."""
        if self._lines % self._stride == 0:
            if len(self._samples) == SAMPLES_MAX:
                self._samples = self._samples[::2]
                self._stride *= 2
            if self._lines % self._stride == 0:
                text, ids = prompt_of(body)
                self._samples.append(_Sample(text[:TEXT_CHARS_MAX], len(text), ids, line_bytes))
        self._lines += 1
        self._bytes += line_bytes

    def tokens(self, count_tokens: Callable[[Sequence[str]], list[int]]) -> int:
        """Of all lines together, rounded up."""
        if not self._samples:
            return 0
        counted = count_tokens([sample.text for sample in self._samples])
        sampled_tokens = sum(
            sample.ids + tokens * max(1.0, sample.text_chars / TEXT_CHARS_MAX)
            for sample, tokens in zip(self._samples, counted, strict=True)
        )
        sampled_bytes = sum(sample.line_bytes for sample in self._samples)
        return math.ceil(sampled_tokens * self._bytes / sampled_bytes)
