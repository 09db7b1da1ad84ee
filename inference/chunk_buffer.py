"""What one request gained since it was last taken, as chunks of one choice each.

Both ends of the wire merge with it what the next reader has not taken yet, so that a slow reader
costs memory bounded by max_tokens and never stops anybody else.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from inference.contracts import Chunk, FinishReason, TokenCounts, TokenLogprob

CHUNK_TOKENS_MAX = 2048
"""Merged into one chunk: with all that can be said of a token, a tenth of the largest frame."""


@dataclass(slots=True)
class _Gain:
    """What one choice gained, up to the size of a chunk."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    embedding: bytes = b""


class ChunkBuffer:
    """Merges the chunks of one request by choice: texts, ids and logprobs are joined."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._gains: dict[int, deque[_Gain]] = {}
        self._counts = TokenCounts()
        self._tokens_waiting = 0

    def __bool__(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._gains)

    def add(self, chunk: Chunk) -> None:
        """Appends a chunk of this request."""
        gains = self._gains.setdefault(chunk.choice, deque())
        if not gains or len(gains[-1].token_ids) + len(chunk.token_ids) > CHUNK_TOKENS_MAX:
            gains.append(_Gain())
        gain = gains[-1]
        gain.texts.append(chunk.text)
        gain.token_ids += chunk.token_ids
        gain.logprobs += chunk.logprobs
        gain.finish_reason = chunk.finish_reason
        gain.embedding += chunk.embedding
        self._tokens_waiting += len(chunk.token_ids)
        self._counts = chunk.counts

    def take(self) -> Chunk | None:
        """What the choice that has waited longest gained, or None; call it until None.

        A choice that gained more than CHUNK_TOKENS_MAX tokens is given in several chunks. Counts
        never fall from one chunk to the next, and leave out the tokens of what is still to be
        taken: they are what a reader has got who has got no more than this.
        """
        if not self._gains:
            return None
        choice = next(iter(self._gains))
        gains = self._gains.pop(choice)
        gain = gains.popleft()
        if gains:
            self._gains[choice] = gains
        return self._chunk(choice, [gain])

    def take_all(self) -> list[Chunk]:
        """Everything, as one chunk for each choice, of whatever size."""
        gains, self._gains = self._gains, {}
        return [self._chunk(choice, parts) for choice, parts in gains.items()]

    def _chunk(self, choice: int, gains: Collection[_Gain]) -> Chunk:
        token_ids = tuple(token_id for gain in gains for token_id in gain.token_ids)
        self._tokens_waiting -= len(token_ids)
        counts = self._counts
        *_, last = gains
        return Chunk(
            self._request_id,
            "".join(text for gain in gains for text in gain.texts),
            token_ids,
            TokenCounts(counts.prompt, counts.cached, counts.completion - self._tokens_waiting),
            choice,
            tuple(entry for gain in gains for entry in gain.logprobs),
            last.finish_reason,
            b"".join(gain.embedding for gain in gains),
        )
