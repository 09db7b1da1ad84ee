"""An engine's end of the wire that does what a test tells it, faults included."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inference.contracts import Chunk, Finish, FinishReason, ModelLimits, TokenCounts
from inference.protocol import (
    PROTOCOL_VERSION,
    FromClient,
    FromEngine,
    Hello,
    encode,
    read_from_client,
)

BUNDLE_HASH = "the-bundle"
WAIT_S = 30.0


@dataclass
class ScriptedEngine:
    """Says hello to whoever connects, remembers what it gets, says what it is told."""

    hello: Hello
    received: list[FromClient] = field(default_factory=list)
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        self.say(self.hello)
        while (frame := await read_from_client(reader)) is not None:
            self.received.append(frame)
        writer.transport.abort()

    def say(self, *frames: FromEngine) -> None:
        for frame in frames:
            self.writers[-1].write(encode(frame))

    def say_bytes(self, data: bytes) -> None:
        self.writers[-1].write(data)

    def hang_up(self) -> None:
        self.writers[-1].transport.abort()


@asynccontextmanager
async def scripted_engine(
    path: Path, *, protocol: int = PROTOCOL_VERSION, bundle_hash: str = BUNDLE_HASH
) -> AsyncIterator[ScriptedEngine]:
    limits = ModelLimits(
        context_tokens_max=512, pool_tokens=1024, vocab_size=100, embedding_dimensions=2
    )
    engine = ScriptedEngine(Hello(protocol, "engine-1", "stub", bundle_hash, limits))
    await asyncio.to_thread(path.unlink, missing_ok=True)
    server = await asyncio.start_unix_server(engine.serve, str(path))
    try:
        yield engine
    finally:
        server.close()
        for writer in engine.writers:
            writer.transport.abort()
        await server.wait_closed()


def chunk(request_id: str, text: str, completion: int, choice: int = 0) -> Chunk:
    return Chunk(request_id, text, (completion,), TokenCounts(5, 0, completion), choice)


def finish(request_id: str, completion: int = 1) -> Finish:
    counts = TokenCounts(5, 0, completion)
    return Finish(request_id, FinishReason.STOP, counts, counts)
