"""How an engine goes: new work refused, running work given its time, nothing lost."""

import asyncio
from pathlib import Path

from inference.contracts import FinishReason, RefusalCode
from inference.server.journal import Journal
from tests.inference.server.running_server import (
    WAIT_S,
    GatedRunner,
    read_all,
    request,
    running_server,
    until,
)


def test_running_work_ends_and_new_work_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            stream = client.submit(request("r1"))
            await client.drain(60.0)
            late = client.submit(request("late"))

            _, refused = await read_all(late)
            runner.let_run()
            _, finish = await read_all(stream)
            client.ack(["r1"])

            assert refused.error_code == RefusalCode.DRAINING
            assert finish.reason is FinishReason.LENGTH
            async with asyncio.timeout(WAIT_S):
                await running.task
            assert not running.socket_path.exists()

    asyncio.run(scenario())


def test_past_the_grace_requests_end_with_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            stream = client.submit(request("r1", max_tokens=400))
            runner.permits.release(2)
            await until(lambda: stream.counts.completion == 2)
            await client.drain(0.0)
            _, refused = await read_all(client.submit(request("late")))
            await client.stats(WAIT_S)
            runner.let_run()

            chunks, finish = await read_all(stream)

            assert refused.error_code == RefusalCode.DRAINING
            assert (finish.reason, finish.error_code) == (FinishReason.ERROR, "draining")
            assert finish.counts == finish.sent == chunks[-1].counts
            client.ack(["r1"])
            async with asyncio.timeout(WAIT_S):
                await running.task

    asyncio.run(scenario())


def test_asking_again_can_shorten_the_grace(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            stream = client.submit(request("r1", max_tokens=400))
            await client.drain(600.0)
            _, refused = await read_all(client.submit(request("late")))
            running.server.start_drain(0.0)
            _, also_refused = await read_all(client.submit(request("later")))
            await client.stats(WAIT_S)
            runner.let_run()

            _, finish = await read_all(stream)

            assert refused.error_code == also_refused.error_code == RefusalCode.DRAINING
            assert finish.reason is FinishReason.ERROR

    asyncio.run(scenario())


def test_what_nobody_acknowledged_stays_in_the_journal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            client = await running.client()
            await read_all(client.submit(request("r1")))

    asyncio.run(scenario())

    journal = Journal(tmp_path / "journal")
    assert set(journal.unacknowledged) == {"r1"}
    journal.close()
