"""The native client: what a web process sees when engines come, stall and go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from inference.client import native
from inference.client.native import EngineClient, EngineLost, EngineStream, EngineUnavailable
from inference.contracts import Chunk, Finish, GenerationRequest, SamplingParams, TokenCounts
from inference.protocol import CREDIT_FRAMES, Abort, Ack, Chunks, Credit, Drain, Finished, Submit
from tests.inference.client.scripted_engine import (
    BUNDLE_HASH,
    WAIT_S,
    ScriptedEngine,
    chunk,
    finish,
    scripted_engine,
)


class Settler:
    """Takes orphans; fails as often as asked first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[list[str]] = []

    async def __call__(self, finishes: Sequence[Finish]) -> None:
        self.calls.append([finish.request_id for finish in finishes])
        if len(self.calls) <= self.failures:
            raise RuntimeError("the database is away")


@asynccontextmanager
async def a_client(path: Path, settler: Settler | None = None) -> AsyncIterator[EngineClient]:
    client = EngineClient(path, BUNDLE_HASH, settler or Settler())
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def ask(request_id: str) -> GenerationRequest:
    return GenerationRequest(request_id, ((1, 2, 3),), SamplingParams(max_tokens=100))


async def until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds that depends on what sockets bring."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.002)


async def got(engine: ScriptedEngine, frame_type: type) -> None:
    """Waits until the engine has got such a frame."""
    await until(lambda: any(isinstance(frame, frame_type) for frame in engine.received))


async def read_to_the_end(stream: EngineStream) -> list[Chunk | Finish]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in stream]


def credited(engine: ScriptedEngine) -> int:
    return sum(frame.frames for frame in engine.received if isinstance(frame, Credit))


def test_a_stream_gives_chunks_and_then_one_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            stream = client.submit(ask("r1"))
            await got(engine, Submit)
            engine.say(Chunks([chunk("r1", "a", 1)]))

            first = await anext(stream)
            engine.say(Chunks([chunk("r1", "b", 2)]), Finished([finish("r1", 2)]))
            rest = await read_to_the_end(stream)

            assert first == chunk("r1", "a", 1)
            assert rest == [chunk("r1", "b", 2), finish("r1", 2)]
            assert stream.counts == TokenCounts(5, 0, 2)

    asyncio.run(scenario())


def test_a_stream_nobody_reads_keeps_one_chunk_a_choice_and_stops_no_other(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            slow, quick = client.submit(ask("slow")), client.submit(ask("quick"))
            await got(engine, Submit)
            steps, half = CREDIT_FRAMES * 4, CREDIT_FRAMES * 2
            for n in range(1, steps + 1):
                engine.say(Chunks([chunk("slow", "xy"[n % 2], n, choice=n % 2)]))
            engine.say(Finished([finish("quick")]))

            quick_events = await read_to_the_end(quick)

            assert quick_events == [finish("quick")]
            await until(lambda: steps - CREDIT_FRAMES < credited(engine) <= steps)
            merged = [await anext(slow), await anext(slow)]
            assert [
                (one.text, one.choice, one.counts.completion)
                for one in merged
                if isinstance(one, Chunk)
            ] == [
                ("y" * half, 1, half),
                ("x" * half, 0, steps),
            ]

    asyncio.run(scenario())


def test_a_dead_connection_ends_streams_with_the_last_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            stream = client.submit(ask("r1"))
            await got(engine, Submit)
            engine.say(Chunks([chunk("r1", "a", 1)]), Chunks([chunk("r1", "b", 2)]))
            await anext(stream)
            engine.hang_up()

            with pytest.raises(EngineLost) as lost:
                await read_to_the_end(stream)

            assert lost.value.counts == stream.counts
            assert stream.counts.completion in {1, 2}
            stream.abort()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    asyncio.run(scenario())


def test_without_a_connection_nothing_is_submitted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_client(tmp_path / "nobody.sock") as client:
            with pytest.raises(EngineUnavailable, match="No such file"):
                await client.wait_connected(0.2)
            with pytest.raises(EngineUnavailable):
                client.submit(ask("r1"))
            with pytest.raises(EngineUnavailable):
                await client.stats(1.0)

            assert not client.connected

    asyncio.run(scenario())


def test_the_client_comes_back_when_the_engine_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with a_client(path) as client:
            for _ in range(2):
                async with scripted_engine(path) as engine:
                    await client.wait_connected(WAIT_S)
                    stream = client.submit(ask("r1"))
                    await got(engine, Submit)
                    engine.say(Finished([finish("r1")]))

                    assert await read_to_the_end(stream) == [finish("r1")]
                await until(lambda: not client.connected)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"protocol": 99}, "protocol 99"), ({"bundle_hash": "other"}, "bundle other")],
)
def test_an_engine_of_another_kind_is_not_used(
    tmp_path: Path, wrong: dict[str, int | str], reason: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with a_client(path) as client:
            async with scripted_engine(path, **wrong):  # type: ignore[arg-type]  # by parameter
                with pytest.raises(EngineUnavailable, match=reason):
                    await client.wait_connected(0.5)

            async with scripted_engine(path):
                await client.wait_connected(WAIT_S)

                assert client.last_error is None

    asyncio.run(scenario())


def test_garbage_from_an_engine_ends_the_connection_and_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            stream = client.submit(ask("r1"))
            engine.say_bytes(b"\x00\x00\x00\x02\xff\xff")

            with pytest.raises(EngineLost):
                await anext(stream)

            await client.wait_connected(WAIT_S)
            assert engine.connections == 2

    asyncio.run(scenario())


def test_an_id_with_a_live_stream_cannot_be_used_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path), a_client(path) as client:
            await client.wait_connected(WAIT_S)
            client.submit(ask("r1"))

            with pytest.raises(ValueError, match="r1 is in progress"):
                client.submit(ask("r1"))

    asyncio.run(scenario())


def test_abort_is_sent_once_and_the_finish_still_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            stream = client.submit(ask("r1"))
            stream.abort()
            stream.abort()
            await got(engine, Abort)
            engine.say(Finished([finish("r1")]))
            events = await read_to_the_end(stream)
            stream.abort()
            client.ack(["r1"])
            await got(engine, Ack)

            assert events == [finish("r1")]
            assert [f for f in engine.received if isinstance(f, Abort)] == [Abort(["r1"])]

    asyncio.run(scenario())


def test_a_finish_without_a_stream_goes_to_the_settler_again_after_it_failed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        settler = Settler(failures=1)
        async with scripted_engine(path) as engine, a_client(path, settler) as client:
            await client.wait_connected(WAIT_S)
            async with asyncio.timeout(WAIT_S):
                while len(settler.calls) < 2:
                    engine.say(Finished([finish("old")]))
                    await asyncio.sleep(0.01)

            assert settler.calls[:2] == [["old"], ["old"]]
            assert client.connected

    asyncio.run(scenario())


def test_a_repeated_finish_is_left_to_the_owner_who_still_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        settler = Settler()
        async with scripted_engine(path) as engine, a_client(path, settler) as client:
            await client.wait_connected(WAIT_S)
            stream = client.submit(ask("r1"))
            await got(engine, Submit)
            engine.say(Finished([finish("r1")]), Finished([finish("r1")]))
            engine.say(Finished([finish("other")]))
            events = await read_to_the_end(stream)
            await until(lambda: settler.calls)

            assert events == [finish("r1")]
            assert settler.calls == [["other"]]

            monkeypatch.setattr(native, "SETTLING_S", 0.0)
            engine.say(Finished([finish("r1")]))
            await until(lambda: len(settler.calls) == 2)
            assert settler.calls[1] == ["r1"]

    asyncio.run(scenario())


def test_of_too_many_settling_owners_the_oldest_finish_goes_to_the_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SETTLING_MAX", 2)

    async def scenario() -> None:
        path = tmp_path / "e.sock"
        settler = Settler()
        async with scripted_engine(path) as engine, a_client(path, settler) as client:
            await client.wait_connected(WAIT_S)
            names = ["r1", "r2", "r3"]
            streams = [client.submit(ask(name)) for name in names]
            for _ in range(2):
                engine.say(*(Finished([finish(name)]) for name in names))
            for stream in streams:
                await read_to_the_end(stream)
            await until(lambda: settler.calls)

            assert settler.calls == [["r1"]]

    asyncio.run(scenario())


def test_an_engine_that_does_not_answer_for_its_stats_is_unavailable(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path), a_client(path) as client:
            await client.wait_connected(WAIT_S)

            with pytest.raises(EngineUnavailable, match="no stats within"):
                await client.stats(0.05)

    asyncio.run(scenario())


def test_a_lost_connection_ends_the_wait_for_stats(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            waiting = asyncio.create_task(client.stats(WAIT_S))
            await asyncio.sleep(0)
            engine.hang_up()

            with pytest.raises(EngineUnavailable, match="connection was lost"):
                await waiting

    asyncio.run(scenario())


def test_drain_reaches_the_engine(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path) as engine, a_client(path) as client:
            await client.wait_connected(WAIT_S)
            await client.drain(3.0)
            await got(engine, Drain)

            assert engine.received == [Drain(3.0)]

    asyncio.run(scenario())


def test_closing_the_client_ends_its_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "e.sock"
        async with scripted_engine(path):
            async with a_client(path) as client:
                await client.wait_connected(WAIT_S)
                stream = client.submit(ask("r1"))

            with pytest.raises(EngineLost):
                await anext(stream)

    asyncio.run(scenario())
