"""An engine server with the stub runner on a real unix socket, and a client that keeps books."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inference.client.native import EngineClient
from inference.contracts import (
    Chunk,
    Finish,
    GenerationRequest,
    Grammar,
    Priority,
    SamplingParams,
)
from inference.engine.answering.detokenizer import TokenTexts
from inference.engine.answering.grammar import Grammars
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import SequenceStep, StepOutput
from inference.server.grammar_trials import GrammarChecks
from inference.server.journal import Journal
from inference.server.server import EngineServer, ServedModel
from tests.inference.engine.stub_runner import Letters, StubRunner

BUNDLE_HASH = "stub-bundle"
WAIT_S = 30.0


def counting(_request_id: str, position: int) -> int:
    """A script for long outputs, which the stub would otherwise take quadratic time for."""
    return position % 100


class GatedRunner(StubRunner):
    """A stub that computes a step only when the test lets it: steps have no duration of their own,
    so a test says when they end instead of sleeping."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # ints only, the script keeps default
        self.permits = threading.Semaphore(0)
        self.open = threading.Event()
        self.steps_entered = 0

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        self.steps_entered += 1
        if not self.open.is_set():
            self.permits.acquire()
        return super().execute(steps)

    def let_run(self) -> None:
        """No more gate."""
        self.open.set()
        self.permits.release()


@dataclass
class Running:
    server: EngineServer
    runner: StubRunner
    socket_path: Path
    task: asyncio.Task[None]
    checks: GrammarChecks | None
    clients: list[EngineClient] = field(default_factory=list)
    orphans: list[Finish] = field(default_factory=list)

    async def client(self, *, acks_orphans: bool = True) -> EngineClient:
        """A connected client whose orphans land in `orphans`."""
        client: EngineClient

        async def settle(finishes: Sequence[Finish]) -> None:
            self.orphans.extend(finishes)
            if acks_orphans:
                client.ack([finish.request_id for finish in finishes])

        client = EngineClient(self.socket_path, BUNDLE_HASH, settle)
        await client.start()
        await client.wait_connected(WAIT_S)
        self.clients.append(client)
        return client


@asynccontextmanager
async def running_server(
    folder: Path,
    runner: StubRunner | None = None,
    *,
    limits: SchedulerLimits | None = None,
    texts: TokenTexts | None = None,
    finishes_max: int = 1000,
    stuck_s: float = 120.0,
    grammars: Grammars | None = None,
) -> AsyncIterator[Running]:
    """Serves from `folder` until the block ends, then drains."""
    runner = runner or StubRunner()
    engine = Engine(
        runner,
        texts or Letters(),
        stop_ids=(),
        limits=limits or SchedulerLimits(),
        clock=time.monotonic,
        grammars=grammars,
    )
    served = ServedModel("engine-1", "stub", BUNDLE_HASH, {"tokenizer.json": b"{}"})
    socket_path = folder / "engine.sock"
    journal = Journal(folder / "journal", finishes_max)
    checks = None if grammars is None else GrammarChecks(grammars)
    server = EngineServer(
        engine, served, socket_path, journal, stuck_s=stuck_s, grammar_checks=checks
    )
    running = Running(server, runner, socket_path, asyncio.create_task(server.run()), checks)
    try:
        await until(lambda: socket_path.exists() or running.task.done())
        yield running
    finally:
        for client in running.clients:
            await client.close()
        if isinstance(runner, GatedRunner):
            runner.let_run()
        server.start_drain(0.0)
        async with asyncio.timeout(WAIT_S):
            await running.task
        engine.check()


async def until(condition: Callable[[], object]) -> None:
    """Waits until a callable becomes true; fails after WAIT_S."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  it may depend on another thread or process
            await asyncio.sleep(0.002)


def request(
    request_id: str,
    *,
    prompt: Sequence[int] = range(20),
    max_tokens: int = 8,
    stop: tuple[str, ...] = (),
    priority: Priority = Priority.INTERACTIVE,
    stream: bool = True,
    grammar: Grammar | None = None,
) -> GenerationRequest:
    """A request of plain letters."""
    return GenerationRequest(
        request_id,
        (tuple(prompt),),
        SamplingParams(max_tokens=max_tokens, temperature=0.0, stop=stop, grammar=grammar),
        priority=priority,
        stream=stream,
    )


async def read_all(stream: "AsyncIterator[Chunk | Finish]") -> tuple[list[Chunk], Finish]:
    """The whole answer of one request."""
    chunks: list[Chunk] = []
    async with asyncio.timeout(WAIT_S):
        async for event in stream:
            if isinstance(event, Finish):
                return chunks, event
            chunks.append(event)
    raise AssertionError("the stream ended without a finish")
