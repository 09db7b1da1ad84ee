"""A web or worker process's connection to one engine: submit, stream, abort, acknowledge.

Keeps itself connected with capped backoff and refuses an engine that speaks another version or
serves another bundle. Torch-free. Everything is called from one event loop; the gateway's runtime
owns the client of its engine.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from inference.client.orphans import Orphans
from inference.client.stream import EngineLost, EngineStream
from inference.contracts import EngineStats, Finish, FinishReason, GenerationRequest
from inference.protocol import (
    CREDIT_FRAMES,
    PROTOCOL_VERSION,
    Abort,
    Ack,
    Chunks,
    Credit,
    Drain,
    Finished,
    FromClient,
    Hello,
    ProtocolError,
    Stats,
    StatsRequest,
    Submit,
    encode,
    read_from_engine,
)
from inference.socket_address import socket_address

__all__ = ["EngineClient", "EngineLost", "EngineStream", "EngineUnavailable"]

logger = logging.getLogger(__name__)

CONNECT_S = 5.0
HELLO_S = 10.0
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
CREDIT_BATCH_FRAMES = CREDIT_FRAMES // 4
"""Frames received before credit is given back: never the whole window, so no stall."""
UNSENT_BYTES_MAX = 32 * 1024 * 1024
"""An engine that reads so little of what we write counts as unavailable."""
SETTLING_S = 1200.0
"""How long the owner of a stream may take to acknowledge before a repeated finish of it goes to
the orphans instead: longer than the gateway goes on trying to settle. It must end some time, since
an owner that gave up acknowledges nothing."""
SETTLING_MAX = 4096
"""Beyond it the oldest goes to the orphans when the engine repeats it."""


class EngineUnavailable(Exception):
    """There is no usable connection to the engine; nothing was submitted."""


class EngineClient:
    """One engine. `on_orphans` settles finishes that no live stream waits for, then calls `ack`;
    it may fail or be slow, and sees the same finish again until it is acknowledged."""

    def __init__(
        self,
        socket_path: Path,
        bundle_hash: str,
        on_orphans: Callable[[Sequence[Finish]], Awaitable[None]],
    ) -> None:
        self.hello: Hello | None = None
        self.last_error: str | None = None
        self._socket_path = socket_path
        self._bundle_hash = bundle_hash
        self._orphans = Orphans(on_orphans)
        self._streams: dict[str, EngineStream] = {}
        self._settling: OrderedDict[str, float] = OrderedDict()
        self._stats_waiters: list[asyncio.Future[EngineStats]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._frames_uncredited = 0
        self._connected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connected(self) -> bool:
        """Whether `submit` would reach the engine now."""
        return self._connected.is_set()

    async def start(self) -> None:
        """Starts connecting in the background and returns at once."""
        assert not self._tasks, "the client is started already"
        self._tasks = [
            asyncio.create_task(self._stay_connected(), name="engine-client"),
            asyncio.create_task(self._orphans.run(), name="engine-client-orphans"),
        ]

    async def close(self) -> None:
        """Hangs up; live streams end with EngineLost, and the engine aborts their requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def wait_connected(self, timeout_s: float) -> None:
        """Raises EngineUnavailable if there is no connection within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise EngineUnavailable(self.last_error or "not connected yet") from None

    def submit(self, request: GenerationRequest) -> EngineStream:
        """Sends a request; its answer is the stream. Raises EngineUnavailable, ValueError for an
        id whose stream is live, and ProtocolError for a prompt that is longer than a frame."""
        if request.request_id in self._streams:
            raise ValueError(f"{request.request_id} is in progress")
        self._send(Submit([request]))
        stream = EngineStream(request.request_id, self._abort)
        self._streams[request.request_id] = stream
        return stream

    def ack(self, request_ids: Iterable[str]) -> None:
        """Tells the engine that these finishes are settled. Lost while disconnected, which is
        harmless: the engine repeats them, and settling again changes nothing."""
        request_ids = list(request_ids)
        for request_id in request_ids:
            self._settling.pop(request_id, None)
        if request_ids and self.connected:
            self._send(Ack(request_ids))

    async def stats(self, timeout_s: float) -> EngineStats:
        """The engine's state now. Raises EngineUnavailable, also when no answer comes in time."""
        self._send(StatsRequest())
        waiter: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._stats_waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            raise EngineUnavailable(f"no stats within {timeout_s} s") from None
        finally:
            if waiter in self._stats_waiters:
                self._stats_waiters.remove(waiter)

    async def drain(self, grace_s: float) -> None:
        """Asks the engine to finish its work and exit. Raises EngineUnavailable."""
        self._send(Drain(grace_s))

    def _abort(self, request_id: str) -> None:
        if self.connected:
            self._send(Abort([request_id]))

    def _send(self, frame: FromClient) -> None:
        if self._writer is None or not self.connected:
            raise EngineUnavailable(self.last_error or "not connected")
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            raise EngineUnavailable("the engine does not read")
        self._writer.write(encode(frame))

    async def _stay_connected(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                await self._connect_and_read()
                backoff_s = BACKOFF_FIRST_S
            except (OSError, ProtocolError, EngineUnavailable) as error:
                self._note_error(str(error) or type(error).__name__)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _connect_and_read(self) -> None:
        """One connection from beginning to end; returns when the engine closed it after Hello."""
        with socket_address(self._socket_path) as address:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(address)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await read_from_engine(reader)
            self.hello = hello = self._checked(hello)
            self._writer = writer
            self._frames_uncredited = 0
            self.last_error = None
            self._connected.set()
            logger.info(
                "event=engine_connected engine=%s socket=%s", hello.engine_id, self._socket_path
            )
            while (frame := await read_from_engine(reader)) is not None:
                self._take(frame)
            self._note_error("the engine closed the connection")
        finally:
            self._hung_up()
            writer.transport.abort()

    def _checked(self, hello: object) -> Hello:
        if not isinstance(hello, Hello):
            raise ProtocolError("the engine hung up or did not say hello")
        if hello.protocol != PROTOCOL_VERSION:
            raise EngineUnavailable(
                f"the engine speaks protocol {hello.protocol}, this process {PROTOCOL_VERSION}"
            )
        if hello.bundle_hash != self._bundle_hash:
            raise EngineUnavailable(
                f"the engine serves bundle {hello.bundle_hash}, this process has "
                f"{self._bundle_hash}"
            )
        return hello

    def _take(self, frame: object) -> None:
        match frame:
            case Chunks(chunks=chunks):
                for chunk in chunks:
                    stream = self._streams.get(chunk.request_id)
                    if stream is not None:
                        stream.received_chunk(chunk)
                self._return_credit()
            case Finished(finishes=finishes):
                for finish in finishes:
                    self._take_finish(finish)
            case Stats(stats=stats):
                for waiter in self._stats_waiters:
                    if not waiter.done():
                        waiter.set_result(stats)
                self._stats_waiters.clear()
            case _:
                raise ProtocolError(f"unexpected {type(frame).__name__}")

    def _take_finish(self, finish: Finish) -> None:
        now_s = time.monotonic()
        while self._settling and next(iter(self._settling.values())) <= now_s - SETTLING_S:
            self._settling.popitem(last=False)
        stream = self._streams.pop(finish.request_id, None)
        if stream is not None:
            if finish.reason is not FinishReason.REFUSED:
                self._settling[finish.request_id] = now_s
                if len(self._settling) > SETTLING_MAX:
                    self._settling.popitem(last=False)
            stream.received_finish(finish)
        elif finish.request_id not in self._settling:
            self._orphans.add(finish)

    def _return_credit(self) -> None:
        """At receipt, not at consumption: streams hold one merged chunk each, so a slow reader of
        one costs bounded memory and stops no other."""
        self._frames_uncredited += 1
        if self._frames_uncredited >= CREDIT_BATCH_FRAMES:
            self._send(Credit(self._frames_uncredited))
            self._frames_uncredited = 0

    def _hung_up(self) -> None:
        self._connected.clear()
        self._writer = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.connection_lost()
        for waiter in self._stats_waiters:
            if not waiter.done():
                waiter.set_exception(EngineUnavailable("the connection was lost"))
        self._stats_waiters.clear()

    def _note_error(self, message: str) -> None:
        if message != self.last_error:
            logger.warning("event=engine_unavailable error=%s", message)
        self.last_error = message
