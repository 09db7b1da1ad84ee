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

TOKENS_MAX = (1 << 31) - 1
"""More than any context; what a count of tokens may be at most."""
SEQUENCES_MAX = 2048
"""Sequences of one request: prompts times choices."""
CHOICES_MAX = 128
STOP_STRINGS_MAX = 4
STOP_STRING_CHARS_MAX = 256
STOP_TOKEN_IDS_MAX = 16
LOGIT_BIASES_MAX = 300
LOGIT_BIAS_ABS_MAX = 100.0
TOP_LOGPROBS_MAX = 20
GRAMMAR_CHARS_MAX = 64 * 1024
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
    TIMED_OUT = "timed_out"
    """Its deadline passed while it ran; the counts are what was computed until then."""
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
    INVALID_GRAMMAR = "invalid_grammar"
    QUEUE_TIMEOUT = "queue_timeout"
    """It waited as long as it was willing to, and never started."""


class GrammarKind(enum.StrEnum):
    """What the source of a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    """Any JSON object; the source is empty."""
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the whole text of an answer must match."""

    kind: GrammarKind
    source: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a source that is too long, missing, or not wanted."""
        if len(self.source) > GRAMMAR_CHARS_MAX:
            raise ValueError(f"a grammar has at most {GRAMMAR_CHARS_MAX} characters")
        if bool(self.source) == (self.kind is GrammarKind.JSON_OBJECT):
            raise ValueError("a JSON schema or a regular expression needs a source, others none")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when to stop.

    `temperature` 0 means greedy. `top_k` 0 means all; `min_p` keeps tokens at least that fraction
    as probable as the best. `seed` is always present (the gateway draws one when the client gives
    none), so that a retried or preempted request repeats itself. Presence and frequency penalties
    count output tokens only; the repetition penalty counts prompt and output. `logprobs` None
    means none, else that many alternatives beside the drawn token. Before `min_tokens` no stop
    token is drawn and no stop string ends the answer.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        """Raises ValueError naming the first field out of range (NaN included)."""
        for name, (low, high) in _SAMPLING_RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must be between {low} and {high}")
        if self.top_p == 0.0:
            raise ValueError("top_p must be above 0")
        if self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens must not be above max_tokens")
        if self.logprobs is not None and not 0 <= self.logprobs <= TOP_LOGPROBS_MAX:
            raise ValueError(f"logprobs takes 0 to {TOP_LOGPROBS_MAX} alternatives")
        if any(not abs(bias) <= LOGIT_BIAS_ABS_MAX for _, bias in self.logit_bias):
            raise ValueError(f"a logit bias is at most {LOGIT_BIAS_ABS_MAX} away from 0")
        if any(not 1 <= len(text) <= STOP_STRING_CHARS_MAX for text in self.stop):
            raise ValueError(f"a stop string has 1 to {STOP_STRING_CHARS_MAX} characters")
        for name, entries_max in _SAMPLING_LENGTHS.items():
            if len(getattr(self, name)) > entries_max:
                raise ValueError(f"{name} takes at most {entries_max} entries")


_SAMPLING_RANGES = {
    "max_tokens": (1, TOKENS_MAX),
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, TOKENS_MAX),
    "min_p": (0.0, 1.0),
    "seed": (0, (1 << SEED_BITS) - 1),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
    "min_tokens": (0, TOKENS_MAX),
}
_SAMPLING_LENGTHS = {
    "logit_bias": LOGIT_BIASES_MAX,
    "stop": STOP_STRINGS_MAX,
    "stop_token_ids": STOP_TOKEN_IDS_MAX,
}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What one caller asks for in one call: `choices` answers to each of `prompts`, or, with
    `sampling` None, the embedding of each prompt.

    Each answer is a sequence of its own; choice number prompt * choices + n names it in chunks. The
    choices of a prompt share its computation and count its tokens once. `cache_salt` partitions the
    prefix cache: two requests share KV blocks only under equal salts. Requests of equal
    `fairness_key` share one turn of their class, in proportion to `fairness_weight`. A request that
    has not started after `queue_timeout_s` is refused, one that is not done after `deadline_s` ends
    as TIMED_OUT; both count from its submission. Chunks come for every request; with `stream` False
    nobody is handed a part of the answer before its end, so `Finish.sent` stays zero.
    """

    request_id: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingParams | None
    choices: int = 1
    cache_salt: bytes = b""
    priority: Priority = Priority.INTERACTIVE
    fairness_key: bytes = b""
    fairness_weight: float = 1.0
    queue_timeout_s: float | None = None
    deadline_s: float | None = None
    stream: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError for counts and times out of range."""
        if not 1 <= len(self.prompts) * self.choices <= SEQUENCES_MAX:
            raise ValueError(f"a request has 1 to {SEQUENCES_MAX} sequences")
        if not 1 <= self.choices <= (1 if self.sampling is None else CHOICES_MAX):
            raise ValueError(f"choices must be 1 to {CHOICES_MAX}, and 1 for embeddings")
        if not 0.0 < self.fairness_weight < float("inf"):
            raise ValueError("fairness_weight must be positive")
        for limit_s in (self.queue_timeout_s, self.deadline_s):
            if limit_s is not None and not limit_s > 0.0:
                raise ValueError("time limits must be positive")


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Cumulative counts of one request, as the engine counts them; 0 <= cached <= prompt.

    All zero until its first prompt is admitted, from then on cached < prompt: the last token of a
    prompt is always computed. A prompt counts once it is admitted, and once for all its choices.
    `cached` is the part of `prompt` found in the prefix cache, fixed at first admission.
    `completion` counts every generated token of every choice, end-of-sequence tokens included.
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
class TokenLogprob:
    """Natural log probabilities of a drawn token and of the `top` most probable (id, logprob),
    before temperature and filters and after penalties, biases and grammar; -inf where excluded."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step added to one choice: decoded text (maybe empty), ids, and the request's counts.

    The last chunk of a choice carries its `finish_reason` (STOP or LENGTH) and the text that was
    still held back, already cut at a stop. `logprobs` belong to the tokens whose text has been
    shown completely with this chunk. `embedding` is little-endian float32, in the one chunk of a
    prompt to embed.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    counts: TokenCounts
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    embedding: bytes = b""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of one request. With several choices `reason` is LENGTH if one of them ended so.

    `counts` is what the engine computed. `sent` is what had been written to the connection that
    carried the request: maybe less for PEER_LOST, zero for a request with `stream` False.
    `error_code` and `error_message` are set for ERROR and REFUSED.
    """

    request_id: str
    reason: FinishReason
    counts: TokenCounts
    sent: TokenCounts
    timings: Timings = field(default_factory=Timings)
    error_code: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one engine can take: the model's context and the size of its KV pool, in tokens.

    `embedding_dimensions` is how many numbers its embeddings have.
    """

    context_tokens_max: int
    pool_tokens: int
    vocab_size: int
    embedding_dimensions: int

    def request_tokens_max(self) -> int:
        """The longest prompt + output that can ever fit."""
        return min(self.context_tokens_max, self.pool_tokens)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by upper bound: `counts[i]` of them lay in (bounds[i - 1], bounds[i]], the last
    of `counts` above all bounds; `total` is their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of an engine, for readiness, metrics and routing.

    `step` rises by one with each step computed; with work waiting or running, a value that stands
    still means the engine is stuck. Counters only rise. `histograms` go by the names that the
    metrics have behind `vllm:`. Times are seconds.
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
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    histograms: dict[str, Histogram] = field(default_factory=dict)
    interactive_running: int = 0
    interactive_waiting: int = 0
    """Of `running` and `waiting`, those that were submitted as interactive."""


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step of the engine, as its trace keeps it; `interactive` and `batch` count tokens."""

    step: int
    ended_at_s: float
    duration_ms: float
    running: int
    waiting: int
    interactive_tokens: int
    batch_tokens: int
    preempted: int


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
