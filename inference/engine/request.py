"""The state of one request inside the engine: tokens known, tokens computed, blocks, text, times.

Plain data with the few derivations that scheduler and engine share; it decides nothing. Lives in
the compute thread only.
"""

from dataclasses import dataclass, field

from inference.contracts import (
    BLOCK_TOKENS,
    GenerationRequest,
    Priority,
    Timings,
    TokenCounts,
    chain_block,
    chain_root,
)
from inference.engine.detokenizer import Detokenizer
from inference.engine.stop_strings import StopStrings


def blocks_for(tokens: int) -> int:
    """How many blocks hold this many tokens."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True, eq=False)
class RequestState:
    """One admitted request. `arrival` orders requests; `priority` starts as the request's class
    and rises when the scheduler ages it.

    The first `computed` of `token_ids` have KV in `blocks`; `digests` names the full blocks of
    `token_ids`, of which the first `published` were offered to the prefix cache.
    """

    request: GenerationRequest
    arrival: int
    priority: Priority
    token_ids: list[int]
    digests: list[bytes]
    cache_root: bytes
    detokenizer: Detokenizer
    stop_strings: StopStrings
    submitted_at_s: float
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    published: int = 0
    cached: int | None = None
    scheduled_at_s: float | None = None
    first_token_at_s: float | None = None

    @property
    def uncomputed(self) -> int:
        """Tokens known but not computed; 1 while decoding."""
        return len(self.token_ids) - self.computed

    @property
    def completion(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def counts(self) -> TokenCounts:
        """What this request has used so far; nothing of a prompt that was never started."""
        if self.cached is None or self.scheduled_at_s is None:
            return TokenCounts()
        return TokenCounts(len(self.request.prompt_ids), self.cached, self.completion)

    def extend_digests(self) -> None:
        """Names the blocks that became full since the last call."""
        while (len(self.digests) + 1) * BLOCK_TOKENS <= len(self.token_ids):
            start = len(self.digests) * BLOCK_TOKENS
            parent = self.digests[-1] if self.digests else self.cache_root
            self.digests.append(chain_block(parent, self.token_ids[start : start + BLOCK_TOKENS]))

    def timings(self, now_s: float) -> Timings:
        """Where the time went, had the request ended now."""
        scheduled_at_s = self.scheduled_at_s if self.scheduled_at_s is not None else now_s
        first_token_at_s = self.first_token_at_s if self.first_token_at_s is not None else now_s
        return Timings(
            queue_ms=round((scheduled_at_s - self.submitted_at_s) * 1000),
            prefill_ms=round((first_token_at_s - scheduled_at_s) * 1000),
            decode_ms=round((now_s - first_token_at_s) * 1000),
        )


def new_state(
    request: GenerationRequest,
    *,
    arrival: int,
    cache_key: bytes,
    detokenizer: Detokenizer,
    now_s: float,
) -> RequestState:
    """The state of a request that has just been admitted to the queue."""
    state = RequestState(
        request=request,
        arrival=arrival,
        priority=request.priority,
        token_ids=list(request.prompt_ids),
        digests=[],
        cache_root=chain_root(salt=request.cache_salt, cache_key=cache_key),
        detokenizer=detokenizer,
        stop_strings=StopStrings(request.sampling.stop),
        submitted_at_s=now_s,
    )
    state.extend_digests()
    return state
