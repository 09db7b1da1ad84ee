"""The state of one sequence inside the engine: tokens known, tokens computed, blocks.

A request has one or more: an answer each, or an embedding. Plain data with the few derivations that
scheduler and engine share; it decides nothing. Lives in the compute thread only.
"""

from dataclasses import dataclass, field

from inference.contracts import (
    BLOCK_TOKENS,
    GenerationRequest,
    Priority,
    chain_block,
    chain_root,
)
from inference.engine.answering.answer import Answer
from inference.engine.answering.grammar import GrammarMatcher


def blocks_for(tokens: int) -> int:
    """How many blocks hold this many tokens."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True, eq=False)
class SequenceState:
    """One sequence of an admitted request. `arrival` orders sequences; `priority` starts as the
    request's class and rises when the scheduler ages it. `answer` is None for an embedding.

    The first `computed` of `token_ids` have KV in `blocks`; `digests` names the full blocks of
    `token_ids`, of which the first `published` were offered to the prefix cache. `drafts` are
    guesses at what follows `token_ids`. `cached` is what the first admission found, and the first
    `charged` tokens were found or have been charged to its key: computing them again is free.
    """

    request: GenerationRequest
    choice: int
    arrival: int
    priority: Priority
    prompt_ids: tuple[int, ...]
    token_ids: list[int]
    cache_root: bytes
    answer: Answer | None
    matcher: GrammarMatcher | None
    digests: list[bytes] = field(default_factory=list)
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    published: int = 0
    drafts: list[int] = field(default_factory=list)
    cached: int | None = None
    charged: int = 0
    pooled: list[float] = field(default_factory=list)
    counted: bool = False
    last_token_at_s: float | None = None

    @property
    def sequence_id(self) -> str:
        """Unique among the sequences of an engine."""
        return f"{self.request.request_id}/{self.choice}"

    @property
    def key(self) -> bytes:
        """Whose turn it takes among those of its class."""
        return self.request.fairness_key

    @property
    def leads(self) -> bool:
        """Whether it computes its prompt for all choices, and stands for it in the counts."""
        return self.choice % self.request.choices == 0

    @property
    def uncomputed(self) -> int:
        """Tokens known but not computed; 1 while decoding."""
        return len(self.token_ids) - self.computed

    @property
    def completion(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - len(self.prompt_ids)

    @property
    def findable_digests(self) -> list[bytes]:
        """What it may find in the prefix cache: never its last token, whose successor is wanted;
        nothing for an embedding, which needs the hidden states of every token."""
        if self.answer is None:
            return []
        return self.digests[: (len(self.token_ids) - 1) // BLOCK_TOKENS]

    def extend_digests(self) -> None:
        """Names the blocks that became full since the last call."""
        while (len(self.digests) + 1) * BLOCK_TOKENS <= len(self.token_ids):
            start = len(self.digests) * BLOCK_TOKENS
            parent = self.digests[-1] if self.digests else self.cache_root
            self.digests.append(chain_block(parent, self.token_ids[start : start + BLOCK_TOKENS]))


def rank(state: SequenceState) -> tuple[int, int, int]:
    """Order of service: class first, then arrival; the smallest is served first."""
    return (state.priority, state.arrival, state.choice)


def new_sequence(
    request: GenerationRequest,
    choice: int,
    *,
    arrival: int,
    cache_key: bytes,
    answer: Answer | None,
    matcher: GrammarMatcher | None,
) -> SequenceState:
    """The state of a sequence that is about to be queued."""
    prompt_ids = request.prompts[choice // request.choices]
    state = SequenceState(
        request=request,
        choice=choice,
        arrival=arrival,
        priority=request.priority,
        prompt_ids=prompt_ids,
        token_ids=list(prompt_ids),
        cache_root=chain_root(salt=request.cache_salt, cache_key=cache_key),
        answer=answer,
        matcher=matcher,
    )
    state.extend_digests()
    return state
