"""The compute thread's way with what it is told while it computes."""

import asyncio
from pathlib import Path

from inference.server.step_loop import COMMANDS_PER_STEP_MAX
from tests.inference.server.running_server import (
    WAIT_S,
    GatedRunner,
    request,
    running_server,
    until,
)


def test_between_two_steps_only_so_many_commands_are_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_server(tmp_path, runner) as running:
            client = await running.client()
            client.submit(request("first"))
            await until(lambda: runner.steps_entered == 1)
            for i in range(3 * COMMANDS_PER_STEP_MAX):
                client.submit(request(f"r{i}"))
            await client.stats(WAIT_S)
            runner.permits.release()
            await until(lambda: runner.steps_entered == 2)

            stats = await client.stats(WAIT_S)

            assert stats.running + stats.waiting == 1 + COMMANDS_PER_STEP_MAX

    asyncio.run(scenario())
