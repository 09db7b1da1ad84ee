"""What one request gained since it was last taken, as one chunk per choice.

Both ends of the wire merge with it what the next reader has not taken yet, so that a slow reader
costs memory bounded by max_tokens and never stops anybody else.
"""

from dataclasses import dataclass, field

from inference.contracts import Chunk, FinishReason, TokenCounts, TokenLogprob


@dataclass(slots=True)
class _Gain:
    """What one choice gained."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    embedding: bytes = b""


class ChunkBuffer:
    """Merges the chunks of one request by choice: texts, ids and logprobs are joined."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._gains: dict[int, _Gain] = {}
        self._counts = TokenCounts()
        self._tokens_waiting = 0

    def __bool__(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._gains)

    def add(self, chunk: Chunk) -> None:
        """Appends a chunk of this request."""
        gain = self._gains.get(chunk.choice)
        if gain is None:
            gain = self._gains[chunk.choice] = _Gain()
        gain.texts.append(chunk.text)
        gain.token_ids += chunk.token_ids
        gain.logprobs += chunk.logprobs
        gain.finish_reason = chunk.finish_reason
        gain.embedding += chunk.embedding
        self._tokens_waiting += len(chunk.token_ids)
        self._counts = chunk.counts

    def take(self) -> Chunk | None:
        """What the choice that has waited longest gained, or None; call it until None.

        Counts never fall from one chunk to the next, and leave out the tokens of choices that are
        still to be taken: they are what a reader has got who has got no more than this.
        """
        if not self._gains:
            return None
        choice = next(iter(self._gains))
        gain = self._gains.pop(choice)
        self._tokens_waiting -= len(gain.token_ids)
        counts = self._counts
        return Chunk(
            self._request_id,
            "".join(gain.texts),
            tuple(gain.token_ids),
            TokenCounts(counts.prompt, counts.cached, counts.completion - self._tokens_waiting),
            choice,
            tuple(gain.logprobs),
            gain.finish_reason,
            gain.embedding,
        )
