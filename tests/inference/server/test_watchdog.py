"""An engine that cannot go on ends, so that its supervisor starts another."""

import asyncio
import time
from pathlib import Path

import pytest

from inference.client.native import EngineLost
from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.protocol import Submit
from inference.server.journal import Journal
from inference.server.server import EngineServer, EngineStuck, ServedModel
from inference.tokenizer.bundle import Bundle
from tests.inference.engine.stub_runner import Letters
from tests.inference.server.engine_process import EXIT_S, EngineProcess
from tests.inference.server.raw_peer import raw_peer
from tests.inference.server.running_server import (
    BUNDLE_HASH,
    GatedRunner,
    read_all,
    request,
    until,
)


def test_a_server_whose_step_never_ends_gives_up_without_waiting_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        engine = Engine(
            runner, Letters(), stop_ids=(), limits=SchedulerLimits(), clock=time.monotonic
        )
        served = ServedModel("engine-1", "stub", BUNDLE_HASH, {})
        socket_path = tmp_path / "engine.sock"
        journal = Journal(tmp_path / "journal")
        server = EngineServer(engine, served, socket_path, journal, stuck_s=0.2)
        serving = asyncio.create_task(server.run())
        await until(socket_path.exists)
        async with raw_peer(socket_path) as peer:
            peer.send(Submit([request("r1")]))
            await until(lambda: runner.steps_entered)

            with pytest.raises(EngineStuck, match="no step has ended for"):
                await serving

        assert not socket_path.exists()
        runner.let_run()

    asyncio.run(scenario())


def test_a_process_that_makes_no_step_in_time_exits_at_once_and_says_where_it_was(
    bundle: Bundle, tmp_path: Path
) -> None:
    engine = EngineProcess(bundle, tmp_path)
    process = engine.start("--stuck-s", "0.1", "--step-tokens-max", "2048")

    async def scenario() -> None:
        async with engine.client() as client:
            long = GenerationRequest("long", ((1,) * 1800,), SamplingParams(max_tokens=2))
            with pytest.raises(EngineLost):
                await read_all(client.submit(long))

    asyncio.run(scenario())

    assert process.wait(EXIT_S) == 1
    assert "event=engine_stuck: no step has ended for" in engine.log()
    assert "execute" in engine.log()
