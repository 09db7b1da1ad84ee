"""The engine server over a real unix socket, with the stub runner behind it."""

import asyncio
from pathlib import Path

from inference.contracts import FinishReason
from tests.inference.engine.stub_runner import expected_output
from tests.inference.server.running_server import read_all, request, running_server


def test_a_request_streams_its_tokens_and_one_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_server(tmp_path) as running:
            client = await running.client()

            chunks, finish = await read_all(client.submit(request("r1")))

            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            assert token_ids == expected_output(range(20), 8)
            assert finish.reason is FinishReason.LENGTH
            assert finish.counts.completion == 8
            client.ack(["r1"])

    asyncio.run(scenario())
