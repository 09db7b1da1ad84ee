"""What one request gained since it was last taken, as one chunk.

Both ends of the wire merge with it what the next reader has not taken yet, so that a slow reader
costs memory bounded by max_tokens and never stops anybody else.
"""

from inference.contracts import Chunk, TokenCounts


class ChunkBuffer:
    """Merges the chunks of one request: texts and ids are joined, the latest counts stay."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._counts: TokenCounts | None = None

    def add(self, chunk: Chunk) -> None:
        """Appends a chunk of this request."""
        self._texts.append(chunk.text)
        self._token_ids += chunk.token_ids
        self._counts = chunk.counts

    def take(self) -> Chunk | None:
        """Everything added since the last call as one chunk, or None."""
        if self._counts is None:
            return None
        chunk = Chunk(self._request_id, "".join(self._texts), tuple(self._token_ids), self._counts)
        self._texts, self._token_ids, self._counts = [], [], None
        return chunk
