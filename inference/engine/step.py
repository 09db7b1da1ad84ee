"""The one step contract between scheduler and runner.

There is no prefill phase and no decode phase: a request has tokens known and tokens computed, and a
step computes some more of them. Chunked prefill, prefix hits and resume after preemption are all
"start later, compute the rest". Torch-free, so that the scheduler can be tested with a stub runner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How to draw the token that follows the last one of a sequence step.

    `position` is the index of the drawn token within the output (0 for the first): together with
    `seed` it fixes the noise, whatever else is in the batch. `temperature` 0 means argmax.
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int
    position: int


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One request's share of a step.

    Computes KV for `token_ids`, which stand at positions start .. start + len(token_ids) - 1 of the
    sequence. `block_table[p // BLOCK_TOKENS]` is the block that holds position p, for every
    position up to the last one computed here; positions below `start` are already filled. With
    `sample` set, the token after the last position is drawn; without, nothing is (a prefill chunk).
    The block table belongs to the scheduler: read it during the step only.
    """

    request_id: str
    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    sample: SampleSpec | None


class Runner(Protocol):
    """Computes steps over a pool of `block_count` KV blocks."""

    block_count: int
    vocab_size: int
    context_tokens_max: int
    cache_key: bytes
    """Names weights version, dtype and KV format: part of every block hash."""
    device: str
    """Where it computes, for people: "cpu" or "cuda:0"."""

    def execute(self, steps: Sequence[SequenceStep]) -> list[int | None]:
        """The drawn token id of each sequence step in order, None where none was asked for."""
        ...
