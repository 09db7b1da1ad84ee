"""Who is told of a finish while the connection that carried its request is dying."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from inference.contracts import (
    EngineStats,
    Finish,
    FinishReason,
    GenerationRequest,
    ModelLimits,
    TokenCounts,
)
from inference.protocol import (
    PROTOCOL_VERSION,
    Description,
    Finished,
    Hello,
    Submit,
    Trace,
    encode,
    read_from_engine,
)
from inference.server.connection import Connection
from inference.server.deliveries import Deliveries
from inference.server.journal import Journal
from tests.inference.server.running_server import WAIT_S, request, until

HELLO = Hello(PROTOCOL_VERSION, "engine-1", "stub", "bundle", ModelLimits(512, 1024, 100, 2))


class Ignored:
    """A server that does nothing with what clients say."""

    def submitted(self, connection: Connection, requests: Sequence[GenerationRequest]) -> None: ...

    def aborted(self, connection: Connection, request_ids: Sequence[str]) -> None: ...

    def acknowledged(self, request_ids: Sequence[str]) -> None: ...

    def drain_requested(self, grace_s: float) -> None: ...

    def stats(self) -> EngineStats:
        raise NotImplementedError

    def description(self) -> Description:
        raise NotImplementedError

    def trace(self) -> Trace:
        raise NotImplementedError


@asynccontextmanager
async def a_connection(
    name: str,
) -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that serves, and its client's end, which has been greeted."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    connection = Connection(*await asyncio.open_unix_connection(sock=ours), Ignored(), name)
    serving = asyncio.create_task(connection.run(HELLO))
    try:
        assert await read_from_engine(reader) == HELLO
        yield connection, reader, writer
    finally:
        writer.transport.abort()
        await serving


def test_a_finish_that_becomes_durable_while_its_owner_dies_is_passed_on_once_and_as_lost(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        journal = Journal(tmp_path)
        deliveries = Deliveries(journal)
        counts = TokenCounts(prompt=20, cached=0, completion=8)
        async with (
            a_connection("owner") as (owner, _, writer),
            a_connection("other") as (other, reader, _),
        ):
            deliveries.connection_opened(other)
            deliveries.connection_opened(owner)
            writer.write(encode(Submit([request("r1")])))
            await until(lambda: "r1" in owner.sent)
            deliveries.add(Finish("r1", FinishReason.LENGTH, counts, counts), owner)
            owner.close()
            running = asyncio.create_task(deliveries.run())
            await until(lambda: deliveries._deliveries["r1"].durable)
            deliveries.connection_closed(owner)

            async with asyncio.timeout(WAIT_S):
                frame = await read_from_engine(reader)

            assert isinstance(frame, Finished)
            (finish,) = frame.finishes
            assert finish.reason is FinishReason.PEER_LOST
            assert (finish.counts, finish.sent) == (counts, TokenCounts())
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        journal.close()

    asyncio.run(scenario())
