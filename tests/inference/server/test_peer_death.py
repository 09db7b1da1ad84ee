"""What is left of a request when its client dies, and who settles it then."""

import asyncio
from pathlib import Path

import pytest

from inference.contracts import Finish, FinishReason, RefusalCode, TokenCounts
from inference.protocol import Ack, Chunks, Finished, Submit
from inference.server import deliveries as deliveries_module
from tests.inference.engine.stub_runner import StubRunner
from tests.inference.server.raw_peer import RawPeer, raw_peer
from tests.inference.server.running_server import (
    GatedRunner,
    Running,
    counting,
    read_all,
    request,
    running_server,
    until,
)


async def read_completion(peer: RawPeer, completion: int) -> None:
    """Reads chunk frames until a request has got so many tokens."""
    while True:
        frame = await peer.read()
        assert isinstance(frame, Chunks)
        if frame.chunks[-1].counts.completion >= completion:
            return


async def read_finished_ids(peer: RawPeer) -> list[str]:
    """The ids in the next frame, which must be one of finishes."""
    frame = await peer.read()
    assert isinstance(frame, Finished)
    return [finish.request_id for finish in frame.finishes]


def idle(running: Running) -> bool:
    stats = running.server.stats()
    return stats.running == stats.waiting == 0 and stats.blocks_used == 0


def test_a_dead_client_ends_its_request_as_peer_lost_with_both_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            async with raw_peer(running.socket_path) as peer:
                peer.send(Submit([request("r1", max_tokens=400)]))
                runner.permits.release(3)
                await read_completion(peer, 3)
                await until(lambda: runner.steps_entered == 4)
            await until(lambda: not running.server.connections)
            # The step in progress still ends: its token is computed, but never sent.
            runner.permits.release(1)
            await until(lambda: idle(running))

            await running.client()
            await until(lambda: running.orphans)

            (finish,) = running.orphans
            assert finish.reason is FinishReason.PEER_LOST
            assert finish.sent == TokenCounts(prompt=20, cached=0, completion=3)
            assert finish.counts == TokenCounts(prompt=20, cached=0, completion=4)

    asyncio.run(scenario())


def test_a_client_that_dies_before_its_whole_answer_was_sent_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            async with raw_peer(running.socket_path) as peer:
                peer.send(Submit([request("r1", max_tokens=400, stream=False)]))
                runner.permits.release(3)
                await read_completion(peer, 3)
            await until(lambda: not running.server.connections)
            runner.let_run()
            await running.client()
            await until(lambda: running.orphans)

            (finish,) = running.orphans
            assert finish.reason is FinishReason.PEER_LOST
            assert finish.counts.completion >= 3
            assert finish.sent == TokenCounts()

    asyncio.run(scenario())


def test_a_client_that_dies_while_its_request_waits_costs_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            busy = await running.client()
            stream = busy.submit(request("busy"))
            await until(lambda: running.server.stats().step_age_s > 0)
            async with raw_peer(running.socket_path) as peer:
                peer.send(Submit([request("queued")]))
            runner.let_run()
            await read_all(stream)
            await until(lambda: running.orphans)

            (finish,) = running.orphans
            assert finish.reason is FinishReason.PEER_LOST
            assert finish.sent.completion == 0
            assert idle(running)

    asyncio.run(scenario())


def test_an_end_that_was_never_written_counts_as_peer_lost(tmp_path: Path) -> None:
    class LongTexts:
        """No kernel buffer takes a whole answer of these."""

        def of(self, _token_id: int) -> bytes:
            return b"long " * 500

    async def scenario() -> None:
        runner = StubRunner(block_count=1200, context_tokens_max=1000, script=counting)
        async with running_server(tmp_path, runner, texts=LongTexts()) as running:
            async with raw_peer(running.socket_path) as peer:
                names = [f"r{n}" for n in range(40)]
                peer.send(Submit([request(n, prompt=[len(n)], max_tokens=400) for n in names]))
                peer.stop_reading()
                await until(lambda: running.server.stats().journal_unacknowledged == len(names))
            await running.client()
            await until(lambda: len(running.orphans) >= len(names))
            await until(lambda: not running.server.stats().journal_unacknowledged)

            assert sorted(finish.request_id for finish in running.orphans) == sorted(names)
            for finish in running.orphans:
                assert finish.reason is FinishReason.PEER_LOST
                assert finish.sent.completion < finish.counts.completion == 400

    asyncio.run(scenario())


def test_an_unacknowledged_finish_goes_to_another_client_when_its_own_dies(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            await running.client()
            async with raw_peer(running.socket_path) as peer:
                peer.send(Submit([request("r1")]))
                await peer.read_finish("r1")

                assert running.orphans == []

            await until(lambda: running.orphans)
            assert running.orphans[0].reason is FinishReason.LENGTH
            await until(lambda: not running.server.stats().journal_unacknowledged)

    asyncio.run(scenario())


def test_an_acknowledged_finish_is_never_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries_module, "RESEND_S", 0.05)

    async def scenario() -> None:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            peer.send(Submit([request("r1"), request("r2")]))
            seen: set[str] = set()
            while len(seen) < 2:
                frame = await peer.read()
                if isinstance(frame, Finished):
                    seen |= {finish.request_id for finish in frame.finishes}
            peer.send(Ack(["r1"]))
            await until(lambda: running.server.stats().journal_unacknowledged == 1)

            # What was on its way before the acknowledgement may still name both.
            while await read_finished_ids(peer) != ["r2"]:
                pass
            repeated = [await read_finished_ids(peer) for _ in range(3)]

            assert repeated == [["r2"]] * 3
            peer.send(Ack(["r2"]))
            await until(lambda: running.server.stats().journal_unacknowledged == 0)

    asyncio.run(scenario())


def test_a_settler_that_fails_sees_the_finish_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries_module, "RESEND_S", 0.05)

    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            async with raw_peer(running.socket_path) as peer:
                peer.send(Submit([request("r1")]))
                await peer.read_finish("r1")
            await running.client(acks_orphans=False)

            await until(lambda: len(running.orphans) >= 3)

            assert {finish.request_id for finish in running.orphans} == {"r1"}
            assert running.server.stats().journal_unacknowledged == 1

    asyncio.run(scenario())


def test_finishes_survive_the_engine_and_reach_its_next_life(tmp_path: Path) -> None:
    async def first_life() -> Finish:
        async with running_server(tmp_path) as running, raw_peer(running.socket_path) as peer:
            peer.send(Submit([request("r1")]))
            _, finish, _ = await peer.read_finish("r1")
            return finish

    async def second_life(expected: Finish) -> None:
        async with running_server(tmp_path) as running:
            client = await running.client()
            await until(lambda: running.orphans)

            assert running.orphans == [expected]
            await until(lambda: not running.server.stats().journal_unacknowledged)
            _, again = await read_all(client.submit(request("r1")))
            assert again.reason is FinishReason.LENGTH

    asyncio.run(second_life(asyncio.run(first_life())))


def test_a_full_journal_refuses_work_rather_than_losing_a_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path, finishes_max=2) as running:
            client = await running.client()
            for name in ("r1", "r2"):
                await read_all(client.submit(request(name)))

            _, refused = await read_all(client.submit(request("r3")))
            client.ack(["r1"])
            await until(lambda: running.server.stats().journal_unacknowledged == 1)
            _, admitted = await read_all(client.submit(request("r4")))

            assert refused.error_code == RefusalCode.QUEUE_FULL
            assert admitted.reason is FinishReason.LENGTH

    asyncio.run(scenario())
