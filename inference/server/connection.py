"""One client connection of an engine: frames in, and what its requests gain out, under credit.

Without credit, or while the socket is full, what each request gains is merged into one later chunk,
so a client that does not read costs bounded memory and stops nobody. Knows frames and counts, not
the engine; the server owns it and is called back through `ConnectionEvents`.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from inference.chunk_buffer import ChunkBuffer
from inference.contracts import Chunk, EngineStats, Finish, GenerationRequest, TokenCounts
from inference.protocol import (
    CREDIT_FRAMES,
    Abort,
    Ack,
    Chunks,
    Credit,
    Describe,
    Description,
    Drain,
    Finished,
    FromEngine,
    Hello,
    ProtocolError,
    Stats,
    StatsRequest,
    Submit,
    Trace,
    TraceRequest,
    encode,
    read_from_client,
)

logger = logging.getLogger(__name__)

FRAME_FILL_BYTES = 1024 * 1024
"""A chunk frame is closed past this estimate; the rest goes into the next one."""
FINISHES_PER_FRAME_MAX = 256
FINISHES_UNWRITTEN_MAX = 4096
"""Past it we stop reading from a client that submits without reading its refusals."""
CHARACTER_BYTES_MAX = 4
TOKEN_ID_BYTES_MAX = 5
LOGPROB_BYTES_MAX = 48
"""An id and a float with the names that msgpack gives the fields of an object."""


class ConnectionEvents(Protocol):
    """What the server does with the frames of a client."""

    def submitted(self, connection: "Connection", requests: Sequence[GenerationRequest]) -> None:
        """New work."""

    def aborted(self, connection: "Connection", request_ids: Sequence[str]) -> None:
        """Work that is not wanted any more."""

    def acknowledged(self, request_ids: Sequence[str]) -> None:
        """Finishes that were settled."""

    def drain_requested(self, grace_s: float) -> None:
        """The engine shall finish and exit."""

    def stats(self) -> EngineStats:
        """The engine's state now."""

    def description(self) -> Description:
        """The tokenizer bundle."""

    def trace(self) -> Trace:
        """The last steps."""


class Connection:
    """`sent` maps each request of this connection whose finish has not been written yet to the
    counts that were in the frames already handed to the kernel. One with `stream` False stays at
    zero: its chunks flow like any other's, but nobody is handed a part of the answer."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        events: ConnectionEvents,
        name: str,
    ) -> None:
        self.name = name
        self.closed = False
        self.sent: dict[str, TokenCounts] = {}
        self._reader = reader
        self._writer = writer
        self._events = events
        self._credit = CREDIT_FRAMES
        self._pending: dict[str, ChunkBuffer] = {}
        self._whole: set[str] = set()
        self._finishes: dict[str, Finish] = {}
        self._refusals: list[Finish] = []
        self._stats_due = False
        self._description_due = False
        self._trace_due = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def push(self, chunk: Chunk) -> None:
        """Queues what a step added to one of this connection's requests."""
        buffer = self._pending.get(chunk.request_id)
        if buffer is None:
            buffer = self._pending[chunk.request_id] = ChunkBuffer(chunk.request_id)
        buffer.add(chunk)
        self._wake.set()

    def deliver(self, finish: Finish) -> None:
        """Queues a finish, after the last chunk of its request; repeating a queued one is free."""
        self._finishes[finish.request_id] = finish
        self._wake.set()

    def refuse(self, finish: Finish) -> None:
        """Queues the finish of a request that was never admitted."""
        self._refusals.append(finish)
        if len(self._refusals) >= FINISHES_UNWRITTEN_MAX:
            self._room.clear()
        self._wake.set()

    async def run(self, hello: Hello) -> None:
        """Serves the connection until either side ends it; returns with `closed` set."""
        # A low-water mark of 0 makes drain() wait for the kernel, so that `sent` is the truth.
        self._writer.transport.set_write_buffer_limits(high=0)
        tasks = {
            asyncio.create_task(self._read_loop(), name=f"{self.name}-read"),
            asyncio.create_task(self._write_loop(hello), name=f"{self.name}-write"),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._report(task.exception())
        finally:
            self.closed = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.transport.abort()

    def close(self) -> None:
        """Hangs up; `run` returns soon after."""
        self.closed = True
        self._writer.transport.abort()

    def _report(self, error: BaseException | None) -> None:
        if isinstance(error, ProtocolError):
            logger.warning("event=protocol_error connection=%s error=%s", self.name, error)
        elif error is not None and not isinstance(error, ConnectionError):
            logger.error("event=connection_failed connection=%s", self.name, exc_info=error)

    async def _read_loop(self) -> None:
        while (frame := await read_from_client(self._reader)) is not None:
            match frame:
                case Submit(requests=requests):
                    for request in requests:
                        self.sent.setdefault(request.request_id, TokenCounts())
                        if not request.stream:
                            self._whole.add(request.request_id)
                    self._events.submitted(self, requests)
                case Abort(request_ids=request_ids):
                    self._events.aborted(self, request_ids)
                case Ack(request_ids=request_ids):
                    self._events.acknowledged(request_ids)
                case Credit(frames=frames):
                    self._add_credit(frames)
                case StatsRequest():
                    self._stats_due = True
                    self._wake.set()
                case TraceRequest():
                    self._trace_due = True
                    self._wake.set()
                case Describe():
                    self._description_due = True
                    self._wake.set()
                case Drain(grace_s=grace_s):
                    self._events.drain_requested(grace_s)
            await self._room.wait()

    def _add_credit(self, frames: int) -> None:
        if frames < 1:
            raise ProtocolError(f"credit of {frames} frames")
        self._credit = min(self._credit + frames, CREDIT_FRAMES)
        self._wake.set()

    async def _write_loop(self, hello: Hello) -> None:
        await self._write(hello)
        while True:
            frame = self._next_frame()
            if frame is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._write(frame)
            if isinstance(frame, Chunks):
                for chunk in frame.chunks:
                    if chunk.request_id in self.sent and chunk.request_id not in self._whole:
                        self.sent[chunk.request_id] = chunk.counts
            elif isinstance(frame, Finished):
                for finish in frame.finishes:
                    self.sent.pop(finish.request_id, None)
                    self._whole.discard(finish.request_id)

    async def _write(self, frame: FromEngine) -> None:
        self._writer.write(encode(frame))
        await self._writer.drain()

    def _next_frame(self) -> FromEngine | None:
        """What to write next. A finish waits only for the last chunks of its own request, and those
        need no credit: there is one per choice."""
        if self._stats_due:
            self._stats_due = False
            return Stats(self._events.stats())
        if self._trace_due:
            self._trace_due = False
            return self._events.trace()
        if self._description_due:
            self._description_due = False
            return self._events.description()
        if self._refusals:
            refusals = self._refusals[:FINISHES_PER_FRAME_MAX]
            del self._refusals[:FINISHES_PER_FRAME_MAX]
            if len(self._refusals) < FINISHES_UNWRITTEN_MAX:
                self._room.set()
            return Finished(refusals)
        ready = [f for f in self._finishes.values() if f.request_id not in self._pending]
        if ready:
            ready = ready[:FINISHES_PER_FRAME_MAX]
            for finish in ready:
                del self._finishes[finish.request_id]
            return Finished(ready)
        if self._credit > 0 and self._pending:
            return self._chunk_frame(list(self._pending))
        if self._finishes:
            return self._chunk_frame(self._finishes)
        return None

    def _chunk_frame(self, request_ids: Iterable[str]) -> Chunks:
        chunks: list[Chunk] = []
        filled_bytes = 0
        for request_id in request_ids:
            buffer = self._pending[request_id]
            while filled_bytes <= FRAME_FILL_BYTES and (chunk := buffer.take()) is not None:
                chunks.append(chunk)
                filled_bytes += _bytes_max(chunk)
            if buffer:
                break
            del self._pending[request_id]
        self._credit -= 1
        return Chunks(chunks)


def _bytes_max(chunk: Chunk) -> int:
    """What a chunk takes in a frame, at most."""
    alternatives = sum(1 + len(logprob.top) for logprob in chunk.logprobs)
    return (
        len(chunk.text) * CHARACTER_BYTES_MAX
        + len(chunk.token_ids) * TOKEN_ID_BYTES_MAX
        + alternatives * LOGPROB_BYTES_MAX
        + len(chunk.embedding)
    )
