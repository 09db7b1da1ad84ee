"""The engine server over a real unix socket, with the stub runner behind it."""

import asyncio
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.client.native import EngineLost
from inference.contracts import FinishReason, RefusalCode, TokenCounts
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import SequenceStep, StepOutput
from inference.protocol import (
    CREDIT_FRAMES,
    FRAME_BYTES_MAX,
    Abort,
    Chunks,
    Credit,
    Describe,
    Description,
    Hello,
    Stats,
    StatsRequest,
    Submit,
)
from inference.server.listener import SocketTaken, open_listener
from tests.inference.engine.stub_runner import StubRunner, expected_output
from tests.inference.server.raw_peer import raw_peer
from tests.inference.server.running_server import (
    BUNDLE_HASH,
    WAIT_S,
    GatedRunner,
    counting,
    read_all,
    request,
    running_server,
    until,
)


def test_a_request_streams_its_tokens_and_one_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            client = await running.client()

            chunks, finish = await read_all(client.submit(request("r1")))

            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            assert token_ids == expected_output(range(20), 8)
            assert finish.reason is FinishReason.LENGTH
            assert finish.counts == finish.sent == chunks[-1].counts
            client.ack(["r1"])

    asyncio.run(scenario())


def test_an_answer_asked_for_whole_flows_too_but_counts_as_sent_by_nobody(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            stream = client.submit(request("whole", stream=False))
            runner.permits.release(3)
            await until(lambda: stream.counts.completion == 3)
            runner.let_run()

            chunks, finish = await read_all(stream)

            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            assert token_ids == expected_output(range(20), 8)
            assert finish.counts.completion == 8
            assert finish.sent == TokenCounts()

    asyncio.run(scenario())


def test_many_requests_on_several_connections_keep_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, StubRunner(block_count=256)) as running:
            clients = [await running.client() for _ in range(3)]
            streams = {
                f"r{n}": clients[n % 3].submit(request(f"r{n}", prompt=[n] * 20, max_tokens=12))
                for n in range(30)
            }

            answers = await asyncio.gather(*map(read_all, streams.values()))

            for n, (chunks, _) in enumerate(answers):
                token_ids = [token for chunk in chunks for token in chunk.token_ids]
                assert token_ids == expected_output([n] * 20, 12)

    asyncio.run(scenario())


def test_hello_describes_the_engine(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            client = await running.client()
            hello = client.hello
            peer.send(Describe())

            description = await peer.read()

            assert isinstance(hello, Hello)
            assert (hello.engine_id, hello.model, hello.bundle_hash) == (
                "engine-1",
                "stub",
                BUNDLE_HASH,
            )
            assert hello.limits.pool_tokens == 64 * 16
            assert isinstance(description, Description)
            assert description.files == {"tokenizer.json": b"{}"}

    asyncio.run(scenario())


def test_the_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            mode = stat.S_IMODE(running.socket_path.stat().st_mode)

            assert mode == 0o600

    asyncio.run(scenario())


def test_a_socket_path_past_the_kernel_limit_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()

    async def scenario() -> None:
        async with running_server(folder) as running:
            client = await running.client()
            _, finish = await read_all(client.submit(request("r1")))

            assert finish.reason is FinishReason.LENGTH

    asyncio.run(scenario())


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    stale = open_listener(path)
    stale.close()

    live = open_listener(path)

    with pytest.raises(SocketTaken, match="another engine"):
        open_listener(path)
    live.close()


def test_a_file_in_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("precious")

    with pytest.raises(SocketTaken, match="not a socket"):
        open_listener(path)
    assert path.read_text() == "precious"


def test_a_repeated_request_id_is_refused_while_it_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            first, second = await running.client(), await running.client()
            stream = first.submit(request("r1"))

            _, while_running = await read_all(second.submit(request("r1")))
            runner.let_run()
            _, finish = await read_all(stream)
            _, while_unacknowledged = await read_all(second.submit(request("r1")))
            first.ack(["r1"])
            await until(lambda: not running.server.stats().journal_unacknowledged)
            _, once_forgotten = await read_all(second.submit(request("r1")))

            duplicate = RefusalCode.DUPLICATE_REQUEST_ID
            assert while_running.error_code == while_unacknowledged.error_code == duplicate
            assert finish.reason is once_forgotten.reason is FinishReason.LENGTH

    asyncio.run(scenario())


def test_an_abort_ends_a_request_with_its_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            stream = client.submit(request("r1", max_tokens=400))
            runner.permits.release(3)
            await until(lambda: stream.counts.completion == 3)
            stream.abort()
            stream.abort()
            # Frames are taken in order: once this is answered, the abort has been taken.
            await client.stats(WAIT_S)
            runner.let_run()

            chunks, finish = await read_all(stream)

            assert finish.reason is FinishReason.CANCELLED
            assert finish.counts == finish.sent == chunks[-1].counts
            assert 3 <= finish.counts.completion < 400

    asyncio.run(scenario())


def test_nobody_aborts_the_requests_of_another_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running, raw_peer(running.socket_path) as p:
            stream = (await running.client()).submit(request("r1"))
            p.send(Abort(["r1", "unknown"]), StatsRequest())
            assert isinstance(await p.read(), Stats)
            runner.let_run()

            _, finish = await read_all(stream)

            assert finish.reason is FinishReason.LENGTH

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", FRAME_BYTES_MAX + 1),
        struct.pack(">I", 4) + b"\xff\xff\xff\xff",
        struct.pack(">I", 0),
    ],
)
def test_what_is_no_frame_ends_that_connection_only(tmp_path: Path, garbage: bytes) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            client = await running.client()
            peer.send_bytes(garbage)

            assert await peer.hung_up_on()
            _, finish = await read_all(client.submit(request("r1")))
            assert finish.reason is FinishReason.LENGTH

    asyncio.run(scenario())


def test_a_peer_that_ends_inside_a_frame_is_hung_up_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            peer.send_bytes(struct.pack(">I", 100) + b"half")
            peer.writer.write_eof()

            assert await peer.hung_up_on()

    asyncio.run(scenario())


def test_credit_must_be_positive(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            peer.send(Credit(-5))

            assert await peer.hung_up_on()

    asyncio.run(scenario())


def test_without_credit_tokens_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = StubRunner(context_tokens_max=1000)
        async with running_server(tmp_path, runner) as running, raw_peer(running.socket_path) as p:
            tokens = CREDIT_FRAMES * 4
            p.send(Submit([request("r1", max_tokens=tokens)]))

            chunks, finish, frames = await p.read_finish("r1")

            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            assert token_ids == expected_output(range(20), tokens)
            assert finish.counts.completion == tokens
            assert frames <= CREDIT_FRAMES + 1

    asyncio.run(scenario())


def test_a_reader_that_never_reads_stops_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = StubRunner(block_count=256, context_tokens_max=3000, script=counting)
        async with running_server(tmp_path, runner) as running, raw_peer(running.socket_path) as p:
            client = await running.client()
            p.send(Submit([request(f"deaf{n}", prompt=[n], max_tokens=1000) for n in range(3)]))
            # Not "all three run": on a busy machine they may be through before anybody looks.
            await until(lambda: running.server.stats().generation_tokens > 0)

            _, finish = await read_all(client.submit(request("r1", max_tokens=50)))

            assert finish.counts.completion == 50
            await until(lambda: running.server.stats().running == 0)
            chunks, deaf, _ = await p.read_finish("deaf1")
            assert sum(len(chunk.token_ids) for chunk in chunks) == deaf.counts.completion == 1000

    asyncio.run(scenario())


def test_one_frame_per_step_carries_every_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running, raw_peer(running.socket_path) as p:
            p.send(Submit([request(f"r{n}", prompt=[n, n]) for n in range(5)]))
            runner.permits.release(1)

            frame = await p.read()
            while isinstance(frame, Chunks) and len(frame.chunks) < 5:
                runner.permits.release(1)
                frame = await p.read()

            assert isinstance(frame, Chunks)
            assert {chunk.request_id for chunk in frame.chunks} == {f"r{n}" for n in range(5)}

    asyncio.run(scenario())


def test_a_full_queue_and_a_hopeless_request_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        limits = SchedulerLimits(running_max=1, waiting_max=1)
        async with running_server(tmp_path, runner, limits=limits) as running:
            client = await running.client()
            running_stream = client.submit(request("running"))
            await until(lambda: running.server.stats().step_age_s > 0)
            runner.permits.release(1)
            await until(lambda: running.server.stats().running == 1)
            client.submit(request("waiting"))
            full = client.submit(request("full"))
            hopeless = client.submit(request("hopeless", max_tokens=10_000))
            runner.let_run()

            _, full_finish = await read_all(full)
            _, hopeless_finish = await read_all(hopeless)
            await read_all(running_stream)

            assert full_finish.error_code == RefusalCode.QUEUE_FULL
            assert hopeless_finish.error_code == RefusalCode.CONTEXT_LENGTH_EXCEEDED
            assert {full_finish.reason, hopeless_finish.reason} == {FinishReason.REFUSED}

    asyncio.run(scenario())


def test_a_step_that_hangs_shows_in_its_age_and_an_idle_engine_has_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            idle = await client.stats(5.0)
            stream = client.submit(request("r1"))
            await until(lambda: running.server.stats().step_age_s > 0.05)

            stuck = await client.stats(5.0)

            assert idle.step_age_s == 0.0
            assert stuck.step_age_s > 0.05
            assert stuck.step == idle.step
            runner.let_run()
            await read_all(stream)
            assert (await client.stats(5.0)).step_age_s == 0.0

    asyncio.run(scenario())


def test_a_request_the_runner_fails_ends_and_its_neighbours_go_on(tmp_path: Path) -> None:
    class Picky(GatedRunner):
        def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
            for step in steps:
                if step.sequence_id == "bad/0" and any(s.position == 3 for s in step.samples):
                    raise RuntimeError("not this one")
            return super().execute(steps)

    async def scenario() -> None:
        runner = Picky()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            streams = [client.submit(request(n, prompt=[3] * 20)) for n in ("r1", "bad", "r2")]
            await client.stats(WAIT_S)
            runner.let_run()

            first, bad, second = await asyncio.gather(*map(read_all, streams))
            _, later = await read_all(client.submit(request("later")))

            assert (bad[1].reason, bad[1].error_code) == (FinishReason.ERROR, "engine_error")
            assert bad[1].counts == bad[1].sent == TokenCounts(prompt=20, cached=0, completion=3)
            for chunks, finish in (first, second):
                token_ids = [token for chunk in chunks for token in chunk.token_ids]
                assert token_ids == expected_output([3] * 20, 8)
                assert finish.reason is FinishReason.LENGTH
            assert later.reason is FinishReason.LENGTH

    asyncio.run(scenario())


def test_a_fault_of_the_engine_itself_ends_the_server_with_that_fault(tmp_path: Path) -> None:
    class Broken:
        def of(self, token_id: int) -> bytes:
            raise LookupError(f"no bytes for {token_id}")

    async def scenario() -> None:
        async with running_server(tmp_path, texts=Broken()) as running:
            client = await running.client()
            with pytest.raises(EngineLost):
                await read_all(client.submit(request("r1")))

            await running.task

    with pytest.raises(LookupError, match="no bytes for"):
        asyncio.run(scenario())
