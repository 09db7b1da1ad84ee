"""A peer that speaks the engine protocol by hand, to do what the client never would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from inference.contracts import Chunk, Finish
from inference.protocol import (
    Chunks,
    Finished,
    FromClient,
    FromEngine,
    Hello,
    encode,
    read_from_engine,
)
from tests.inference.server.running_server import WAIT_S

FrameT = TypeVar("FrameT")


class RawPeer:
    """One connection; nothing is read unless the test asks for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: FromClient) -> None:
        for frame in frames:
            self.writer.write(encode(frame))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> FromEngine | None:
        async with asyncio.timeout(WAIT_S):
            return await read_from_engine(self.reader)

    async def read_finish(self, request_id: str) -> tuple[list[Chunk], Finish, int]:
        """Chunks, finish, and the number of chunk frames on the way to the finish."""
        chunks: list[Chunk] = []
        frames = 0
        while (frame := await self.read()) is not None:
            if isinstance(frame, Chunks):
                frames += 1
                chunks += [chunk for chunk in frame.chunks if chunk.request_id == request_id]
            if isinstance(frame, Finished):
                for finish in frame.finishes:
                    if finish.request_id == request_id:
                        return chunks, finish, frames
        raise AssertionError("the engine hung up")

    async def hung_up_on(self) -> bool:
        """Whether the engine ends the connection, after whatever it still says."""
        while await self.read() is not None:
            pass
        return True

    def stop_reading(self) -> None:
        """From now on the kernel's buffer is all that takes what the engine writes."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def hang_up(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def raw_peer(socket_path: Path) -> AsyncIterator[RawPeer]:
    """A connection on which hello has been read."""
    reader, writer = await asyncio.open_unix_connection(str(socket_path))
    peer = RawPeer(reader, writer)
    try:
        assert isinstance(await peer.read(), Hello)
        yield peer
    finally:
        peer.hang_up()
