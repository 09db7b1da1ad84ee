"""The engine as a process of its own: dying peers, kill -9, SIGTERM, and a second one too many."""

import asyncio
import dataclasses
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.client.native import EngineClient, EngineLost
from inference.contracts import (
    Chunk,
    EngineStats,
    FinishReason,
    GenerationRequest,
    SamplingParams,
)
from inference.protocol import Chunks, Submit
from inference.tokenizer.bundle import Bundle
from tests.inference.conftest import Golden
from tests.inference.server.engine_process import EXIT_S, START_S, EngineProcess
from tests.inference.server.raw_peer import raw_peer
from tests.inference.server.running_server import read_all, until

FREED_S = 1.0
ENDLESS = SamplingParams(max_tokens=1500, temperature=0.0, ignore_eos=True)


@dataclass
class Live:
    """The engine all tests of this module share; the last test ends it."""

    engine: EngineProcess
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def live(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    engine = EngineProcess(bundle, tmp_path_factory.mktemp("engine"))
    live = Live(engine, engine.start())
    try:
        yield live
    finally:
        live.process.kill()
        live.process.wait(EXIT_S)


async def stats_once(client: EngineClient, *, running: int, within_s: float) -> EngineStats:
    """The first stats with so many requests running; fails after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while True:
        stats = await client.stats(within_s)
        if stats.running == running and stats.waiting == 0:
            return stats
        assert time.monotonic() < deadline_s, stats


def test_the_engine_answers_over_its_socket(live: Live, goldens: list[Golden]) -> None:
    async def scenario() -> None:
        async with live.engine.client() as client:
            sampling = SamplingParams(max_tokens=48, temperature=0.0)
            request = GenerationRequest("paris", (goldens[0].prompt_ids,), sampling)

            chunks, finish = await read_all(client.submit(request))
            client.ack(["paris"])

            assert "".join(chunk.text for chunk in chunks) == goldens[0].text
            assert finish.reason is FinishReason.STOP
            assert "requests at 2048 tokens" in live.engine.log()
            assert " device=auto " not in live.engine.log()

    asyncio.run(scenario())


def test_a_client_gone_mid_stream_or_before_frees_its_requests_within_a_second(
    live: Live, goldens: list[Golden]
) -> None:
    async def scenario() -> None:
        async with live.engine.client() as client:
            async with raw_peer(live.engine.folder / "engine.sock") as peer:
                requests = [
                    GenerationRequest(f"gone{n}", (goldens[n].prompt_ids,), ENDLESS)
                    for n in range(3)
                ]
                peer.send(Submit(requests))
                assert isinstance(await peer.read(), Chunks)
                received = await client.stats(5.0)
                assert received.running > 0
                peer.send(Submit([GenerationRequest("unseen", (goldens[4].prompt_ids,), ENDLESS)]))

            await stats_once(client, running=0, within_s=FREED_S)

            await until(lambda: len(live.engine.orphans) == 4)
            for finish in live.engine.orphans:
                assert finish.reason is FinishReason.PEER_LOST
                assert finish.sent.completion <= finish.counts.completion
            live.engine.orphans.clear()

    asyncio.run(scenario())


def test_altered_weights_end_the_process_with_one_clear_line(
    bundle: Bundle, tmp_path: Path
) -> None:
    altered = dataclasses.replace(bundle, folder=tmp_path / "bundle")
    shutil.copytree(bundle.folder, altered.folder)
    with (altered.folder / altered.weights_file).open("ab") as file:
        file.write(b"more")
    engine = EngineProcess(altered, tmp_path)

    status = engine.start().wait(START_S)

    assert status == 1
    (line,) = engine.log().splitlines()
    assert "event=engine_failed error=CheckpointInvalid" in line
    assert "not the weights" in line


def test_a_second_engine_on_the_same_journal_or_socket_says_so_and_goes(
    live: Live, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with live.engine.client():
            same_journal = live.engine.start("--socket", str(tmp_path / "other.sock"))
            same_socket = live.engine.start("--journal", str(tmp_path / "journal"))

            assert await asyncio.to_thread(same_journal.wait, EXIT_S) == 1
            assert await asyncio.to_thread(same_socket.wait, EXIT_S) == 1
            assert "belongs to a running engine" in live.engine.log()
            assert "another engine listens" in live.engine.log()

    asyncio.run(scenario())


def test_finishes_of_a_killed_engine_are_replayed_and_running_streams_are_lost(
    live: Live, goldens: list[Golden]
) -> None:
    async def scenario() -> None:
        short = SamplingParams(max_tokens=3, temperature=0.0)
        async with live.engine.client() as client:
            stream = client.submit(GenerationRequest("cut", (goldens[1].prompt_ids,), ENDLESS))
            _, unsettled = await read_all(
                client.submit(GenerationRequest("unsettled", (goldens[0].prompt_ids,), short))
            )
            assert isinstance(await anext(stream), Chunk)
            live.process.kill()
            await asyncio.to_thread(live.process.wait, EXIT_S)
            with pytest.raises(EngineLost) as lost:
                await read_all(stream)

        assert lost.value.counts.completion > 0
        live.process = live.engine.start()
        async with live.engine.client() as client:
            await until(lambda: live.engine.orphans)

            assert live.engine.orphans == [unsettled]
            async with asyncio.timeout(5.0):
                while (await client.stats(5.0)).journal_unacknowledged:
                    pass

    asyncio.run(scenario())


def test_a_terminated_engine_ends_running_streams_after_the_grace_and_exits_0(
    live: Live, goldens: list[Golden]
) -> None:
    async def scenario() -> None:
        async with (
            live.engine.client() as client,
            raw_peer(live.engine.folder / "engine.sock") as peer,
        ):
            stream = client.submit(GenerationRequest("long", (goldens[1].prompt_ids,), ENDLESS))
            assert isinstance(await anext(stream), Chunk)
            await client.drain(0.0)
            live.process.send_signal(signal.SIGTERM)

            _, finish = await read_all(stream)
            client.ack(["long"])

            assert (finish.reason, finish.error_code) == (FinishReason.ERROR, "draining")
            assert await peer.hung_up_on()
            assert await asyncio.to_thread(live.process.wait, EXIT_S) == 0
            assert "event=drain_signal signal=SIGTERM" in live.engine.log()

    asyncio.run(scenario())
