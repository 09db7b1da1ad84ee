"""One request's answer as the event loop sees it: chunks, then exactly one finish or a loss.

Buffers what its reader has not taken yet as one chunk per choice, so a slow reader never holds up
the connection. Fed by the client, read by whoever submitted the request.
"""

import asyncio
from collections.abc import Callable

from inference.chunk_buffer import ChunkBuffer
from inference.contracts import Chunk, Finish, TokenCounts


class EngineLost(Exception):
    """The connection died before the finish came; `counts` is the last that was received."""

    def __init__(self, counts: TokenCounts) -> None:
        super().__init__("the connection to the engine was lost")
        self.counts = counts


class EngineStream:
    """An async iterator for one reader: `Chunk`s, each of one choice, then one `Finish`.

    Raises EngineLost."""

    def __init__(self, request_id: str, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.counts = TokenCounts()
        self._abort = abort
        self._aborted = False
        self._buffer = ChunkBuffer(request_id)
        self._finish: Finish | None = None
        self._lost = False
        self._ended = False
        self._wake = asyncio.Event()

    def abort(self) -> None:
        """Asks the engine to stop; the finish still comes. Without effect when repeated, after
        the finish or after a loss."""
        if not self._aborted and self._finish is None and not self._lost:
            self._aborted = True
            self._abort(self.request_id)

    def __aiter__(self) -> "EngineStream":
        return self

    async def __anext__(self) -> Chunk | Finish:
        if self._ended:
            raise StopAsyncIteration
        while True:
            chunk = self._buffer.take()
            if chunk is not None:
                return chunk
            if self._finish is not None:
                self._ended = True
                return self._finish
            if self._lost:
                self._ended = True
                raise EngineLost(self.counts)
            self._wake.clear()
            await self._wake.wait()

    def received_chunk(self, chunk: Chunk) -> None:
        """For the client: one more chunk has come."""
        self._buffer.add(chunk)
        self.counts = chunk.counts
        self._wake.set()

    def received_finish(self, finish: Finish) -> None:
        """For the client: the request has ended."""
        self._finish = finish
        self.counts = finish.counts
        self._wake.set()

    def connection_lost(self) -> None:
        """For the client: nothing more will come."""
        if self._finish is None:
            self._lost = True
            self._wake.set()
