"""The operator's command that shows an engine's last steps."""

import asyncio
import json
from pathlib import Path

import pytest

from inference.contracts import StepTrace
from inference.server.trace import COLUMNS, main, read_trace, table
from tests.inference.server.running_server import read_all, request, running_server

STEPS = [
    StepTrace(
        step=step,
        ended_at_s=100.0 + step,
        duration_ms=12.34,
        running=2,
        waiting=1,
        interactive_tokens=20,
        batch_tokens=3,
        preempted=0,
    )
    for step in (7, 8)
]


def test_a_trace_has_a_line_per_step_with_ages_from_the_last() -> None:
    heads, first, last = table(STEPS).splitlines()

    assert heads.split() == [*("step", "age", "s", "ms"), *list(COLUMNS)[3:]]
    assert first.split() == ["7", "1.0", "12.3", "2", "1", "20", "3", "0"]
    assert last.split() == ["8", "0.0", "12.3", "2", "1", "20", "3", "0"]


def test_a_running_engine_tells_its_steps(tmp_path: Path) -> None:
    async def scenario() -> list[StepTrace]:
        async with running_server(tmp_path) as running:
            client = await running.client()
            await read_all(client.submit(request("r", prompt=range(20), max_tokens=5)))
            return await read_trace(running.socket_path)

    steps = asyncio.run(scenario())

    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert [step.interactive_tokens for step in steps] == [20, 1, 1, 1, 1]


def test_the_command_prints_the_last_steps_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> int:
        async with running_server(tmp_path) as running:
            client = await running.client()
            await read_all(client.submit(request("r", max_tokens=5)))
            arguments = ["--socket", str(running.socket_path), "--json", "--steps", "2"]
            return await asyncio.to_thread(main, arguments)

    status = asyncio.run(scenario())

    assert status == 0
    assert [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()] == [4, 5]


def test_without_an_engine_it_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--socket", str(tmp_path / "nobody.sock")]) == 1
    assert "nobody.sock" in capsys.readouterr().err
