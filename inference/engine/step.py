"""The one step contract between scheduler and runner.

There is no prefill phase and no decode phase: a request has tokens known and tokens computed, and a
step computes some more of them. Chunked prefill, prefix hits, resume after preemption and checking
drafted tokens are all "start later, compute the rest". Torch-free, so that the scheduler can be
tested with a stub runner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.contracts import TokenLogprob

PENDING = -1
"""Stands at the end of `token_ids` for the token that the sequence's last launched step draws."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How to draw the token that follows one token of a sequence step.

    `position` is the index of the drawn token within the output (0 for the first): together with
    `seed` and `choice` it fixes the noise, whatever else is in the batch. `temperature` 0 means
    argmax. `output_ids` are the tokens generated before it, `prompt_ids` the prompt; both are empty
    where no penalty needs them. `banned_ids` cannot be drawn. `allowed` is a bit per vocabulary
    entry (little-endian 32-bit words), b"" where all are allowed. `logprobs` None means none, else
    that many alternatives.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    position: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    prompt_ids: Sequence[int] = ()
    output_ids: Sequence[int] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_ids: tuple[int, ...] = ()
    allowed: bytes = b""
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One sequence's share of a step.

    Computes KV for `token_ids`, which stand at positions start .. start + len(token_ids) - 1 of the
    sequence. `block_table[p // BLOCK_TOKENS]` is the block that holds position p, for every
    position up to the last one computed here; positions below `start` are already filled. After
    each of the last len(samples) tokens, a token is drawn: none for a prefill chunk, one to
    generate, one more for each drafted token at the end of `token_ids`. With `pool`, the final
    hidden states of all tokens of the step are summed. The block table belongs to the scheduler:
    read it during the step only.
    """

    sequence_id: str
    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    samples: tuple[SampleSpec, ...] = ()
    pool: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """One drawn token, with its log probabilities where they were asked for."""

    token_id: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a sequence step gave: `drawn` one per sample, `pooled` [hidden_size] where asked for."""

    drawn: tuple[Drawn, ...] = ()
    pooled: tuple[float, ...] = ()


class Runner(Protocol):
    """Computes steps over a pool of `block_count` KV blocks."""

    block_count: int
    vocab_size: int
    hidden_size: int
    """Elements of what `pooled` sums."""
    context_tokens_max: int
    cache_key: bytes
    """Names weights version, dtype and KV format: part of every block hash."""
    device: str
    """Where it computes, for people: "cpu" or "cuda:0"."""

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        """The outputs of the sequence steps, in order."""
        ...


class Launched(Protocol):
    """A step on its way on the device."""

    def outputs(self) -> list[StepOutput]:
        """Waits for its end; raises what the step raised."""
        ...


class LaunchingRunner(Runner, Protocol):
    """A runner whose steps can be launched before the one before has been read."""

    def launch(self, steps: Sequence[SequenceStep]) -> Launched:
        """Starts a step behind those launched before. Everything in `steps` is read before it
        returns; `token_ids` may end in PENDING."""
        ...
