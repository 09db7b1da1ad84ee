"""What the engine is asked for and what it answers: plain values, shared by both sides of the wire.

Imported by the web process, so nothing here may import torch or anything outside the standard
library. The engine knows tokens, not tenants and not money: a tenant reaches it only as an opaque
salt, a priority and a request id.
"""

import enum
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

BLOCK_TOKENS = 16
"""Tokens in one KV block, and so the step in which prefixes are shared and counted as cached."""

_BLOCK = struct.Struct(f">{BLOCK_TOKENS}I")

STOP_STRINGS_MAX = 4
STOP_STRING_CHARS_MAX = 256
STOP_TOKEN_IDS_MAX = 16
SEED_BITS = 63
"""Seeds are integers in 0 .. 2**63 - 1, so that they fit a signed 64-bit tensor."""


class Priority(enum.IntEnum):
    """Scheduling class; the smaller value goes first."""

    INTERACTIVE = 0
    BATCH = 1


class FinishReason(enum.StrEnum):
    """Why a request ended. Every request that was submitted ends with exactly one of these."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    """Aborted by the client side; the counts are what was computed until the abort took effect."""
    PEER_LOST = "peer_lost"
    """The connection that carried the request died; `sent` is what had been written to it."""
    ERROR = "error"
    """The engine failed this request; its neighbours go on."""
    REFUSED = "refused"
    """Never admitted (`error_code` says why): nothing was computed, nothing may be charged."""


class RefusalCode(enum.StrEnum):
    """Why the engine refuses a request at its door."""

    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    INVALID_REQUEST = "invalid_request"
    DUPLICATE_REQUEST_ID = "duplicate_request_id"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when to stop.

    `temperature` 0 means greedy. `top_k` 0 means all. `seed` is always present (the gateway draws
    one when the client gives none), so that a retried or preempted request repeats itself.
    `ignore_eos` is internal: benchmarks use it, no public route sets it.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError naming the first field out of range (NaN included)."""
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        if not 0.0 <= self.temperature <= 2.0:
            raise ValueError("temperature must be between 0 and 2")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError("top_p must be above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError("top_k must not be negative")
        if not 0 <= self.seed < 1 << SEED_BITS:
            raise ValueError(f"seed must be an integer in 0 .. 2**{SEED_BITS} - 1")
        if len(self.stop) > STOP_STRINGS_MAX:
            raise ValueError(f"at most {STOP_STRINGS_MAX} stop strings are allowed")
        if any(not 1 <= len(text) <= STOP_STRING_CHARS_MAX for text in self.stop):
            raise ValueError(f"a stop string has 1 to {STOP_STRING_CHARS_MAX} characters")
        if len(self.stop_token_ids) > STOP_TOKEN_IDS_MAX:
            raise ValueError(f"at most {STOP_TOKEN_IDS_MAX} stop token ids are allowed")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One completion to compute.

    `cache_salt` partitions the prefix cache: two requests share KV blocks only under equal salts.
    Chunks come for every request; with `stream` False nobody is handed a part of the answer before
    its end, so `Finish.sent` stays zero.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    cache_salt: bytes = b""
    priority: Priority = Priority.INTERACTIVE
    stream: bool = True


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Cumulative counts of one request, as the engine counts them; 0 <= cached <= prompt.

    All zero until admitted, from then on cached < prompt: the last prompt token is always computed.
    `cached` is the part of `prompt` found in the prefix cache, fixed at first admission.
    `completion` counts every generated token, the end-of-sequence token included.
    """

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Where a request's time went, in milliseconds: queued, until the first token, and after it."""

    queue_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step added to one request: decoded text (maybe empty), ids, and counts so far."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    counts: TokenCounts


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of one request. `text` is the tail that was still held back, already cut at a stop.

    `counts` is what the engine computed. `sent` is what had been written to the connection that
    carried the request: maybe less for PEER_LOST, zero for a request with `stream` False.
    `error_code` and `error_message` are set for ERROR and REFUSED.
    """

    request_id: str
    reason: FinishReason
    text: str
    counts: TokenCounts
    sent: TokenCounts
    timings: Timings = field(default_factory=Timings)
    error_code: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one engine can take: the model's context and the size of its KV pool, in tokens."""

    context_tokens_max: int
    pool_tokens: int
    vocab_size: int

    def request_tokens_max(self) -> int:
        """The longest prompt + output that can ever fit."""
        return min(self.context_tokens_max, self.pool_tokens)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of an engine, for readiness, metrics and routing.

    `step` rises by one with each step computed; with work waiting or running, a value that stands
    still means the engine is stuck. Times are seconds.
    """

    step: int
    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    blocks_cached: int
    prompt_tokens: int
    prompt_tokens_cached: int
    generation_tokens: int
    preemptions: int
    finished: dict[str, int]
    journal_unacknowledged: int
    step_age_s: float
    """Since the last step ended, or since work arrived on an idle engine; 0 when idle."""


def chain_root(*, salt: bytes, cache_key: bytes) -> bytes:
    """The digest that stands before the first block of every sequence under this salt.

    `salt` is the tenant's; `cache_key` names what else must be equal for KV to be reusable (weights
    version, dtype and KV format, adapter). Both are length-prefixed, so that no pair of values can
    collide by shifting bytes from one field to the other.
    """
    return hashlib.sha256(
        b"headrace-kv-1" + len(salt).to_bytes(4, "big") + salt + cache_key
    ).digest()


def chain_block(parent: bytes, block: Sequence[int]) -> bytes:
    """The digest of one full block of token ids (each 0 .. 2**32 - 1) that follows `parent`."""
    return hashlib.sha256(parent + _BLOCK.pack(*block)).digest()
