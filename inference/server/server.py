"""The engine's front: a unix socket, its connections, and the way to a clean exit.

Routes requests to the compute thread and what comes back to the connection that asked; a dead
connection's requests end at once. It never computes and never blocks the event loop. Run by
`__main__` and by tests, with whatever engine they built.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inference.contracts import EngineStats, FinishReason, GenerationRequest, RefusalCode
from inference.engine.engine import Engine, StepResult
from inference.engine.request import refused
from inference.protocol import PROTOCOL_VERSION, Description, Hello, Trace
from inference.server.connection import Connection
from inference.server.deliveries import Deliveries
from inference.server.grammar_door import GrammarDoor
from inference.server.grammar_trials import GrammarChecks
from inference.server.journal import Journal, JournalError
from inference.server.listener import open_listener
from inference.server.step_loop import STOP_WAIT_S, StepLoop

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
DRAIN_S_MAX = 3600.0
ABORT_WAIT_S = 5.0
"""After the grace of a drain: how long the aborted requests may take to end."""
ACK_WAIT_S = 2.0
"""At the end of a drain: how long clients may take to acknowledge; the rest stays journaled."""
DRAINING = "draining"
STUCK_S = 120.0
"""Without a step for so long while there is work, an engine will make none any more: longer than
the slowest that a loaded machine ever took."""
STUCK_CHECKS = 4
"""How often this is looked at within that time; twice in a row, so that a process which was
suspended gets to go on."""


class EngineStuck(Exception):
    """The compute thread did not end its step; the process must be replaced at once."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What `Hello` and `Description` say about the model."""

    engine_id: str
    model: str
    bundle_hash: str
    files: dict[str, bytes]


class EngineServer:
    """Serves one engine on one socket until drained."""

    def __init__(
        self,
        engine: Engine,
        served: ServedModel,
        socket_path: Path,
        journal: Journal,
        *,
        stuck_s: float = STUCK_S,
        grammar_checks: GrammarChecks | None = None,
    ) -> None:
        self._served = served
        self._socket_path = socket_path
        self._journal = journal
        self._stuck_s = stuck_s
        self._limits = engine.limits
        self._deliveries = Deliveries(journal)
        self._step_loop = StepLoop(engine, self._took_step, self._died)
        self._door = GrammarDoor(grammar_checks, self._step_loop.submit, self._took_step)
        self._carriers: dict[str, Connection] = {}
        self._ending: set[str] = set()
        self._connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._connection_names = 0
        self._drain_grace_s: float | None = None
        self._drain_asked = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._alone = asyncio.Event()
        self._alone.set()
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def connections(self) -> int:
        """Clients connected now."""
        return len(self._connections)

    async def run(self) -> None:
        """Serves until a drain is complete. Raises SocketTaken, JournalError, EngineStuck, or
        what killed the compute thread."""
        listener = open_listener(self._socket_path)
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        self._step_loop.start()
        background = asyncio.create_task(self._deliveries.run(), name="deliveries")
        draining = asyncio.create_task(self._drain_when_asked(), name="drain")
        watching = asyncio.create_task(self._watch_steps(), name="watch")
        logger.info(
            "event=ready socket=%s unacknowledged=%d", self._socket_path, len(self._deliveries)
        )
        try:
            waits = {background, draining, watching, self._fatal}
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            wait_s = 0.0 if watching.done() else STOP_WAIT_S
            self._socket_path.unlink(missing_ok=True)
            server.close()
            serving = [task for task in self._connections.values() if task is not None]
            for connection in self._connections:
                connection.close()
            for task in (background, draining, watching):
                task.cancel()
            await asyncio.gather(background, draining, watching, *serving, return_exceptions=True)
            await self._door.close()
            stopped = await asyncio.to_thread(self._step_loop.stop, wait_s)
            self._journal.close()
        if not stopped:
            raise EngineStuck("the compute thread did not stop")

    def start_drain(self, grace_s: float) -> None:
        """Refuses new work, lets running work end within `grace_s`, then `run` returns.

        Asking again can only shorten the grace.
        """
        grace_s = min(max(grace_s, 0.0), DRAIN_S_MAX)
        if self._drain_grace_s is None or grace_s < self._drain_grace_s:
            self._drain_grace_s = grace_s
            self._drain_asked.set()

    def submitted(self, connection: Connection, requests: Sequence[GenerationRequest]) -> None:
        """ConnectionEvents: queues what may be queued, refuses the rest."""
        for request in requests:
            refusal = self._refusal(request.request_id)
            if refusal is not None:
                connection.refuse(refused(request.request_id, *refusal))
                continue
            self._carriers[request.request_id] = connection
            self._idle.clear()
            self._door.submit(request)

    def aborted(self, connection: Connection, request_ids: Sequence[str]) -> None:
        """ConnectionEvents: ends requests of this connection; others' ids are ignored."""
        self._end(
            [i for i in request_ids if self._carriers.get(i) is connection],
            FinishReason.CANCELLED,
        )

    def acknowledged(self, request_ids: Sequence[str]) -> None:
        """ConnectionEvents: any connection may acknowledge any finish."""
        try:
            self._deliveries.acknowledge(list(request_ids))
        except JournalError as error:
            self._died(error)

    def drain_requested(self, grace_s: float) -> None:
        """ConnectionEvents: the same as SIGTERM."""
        logger.info("event=drain_requested grace_s=%.1f", grace_s)
        self.start_drain(grace_s)

    def stats(self) -> EngineStats:
        """ConnectionEvents: the engine's numbers with what only the server knows."""
        return replace(self._step_loop.stats(), journal_unacknowledged=len(self._deliveries))

    def trace(self) -> Trace:
        """ConnectionEvents: the engine's last steps."""
        return Trace(self._step_loop.trace())

    def description(self) -> Description:
        """ConnectionEvents: the tokenizer bundle."""
        return Description(self._served.bundle_hash, self._served.files)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connections >= CONNECTIONS_MAX:
            logger.warning("event=connection_refused reason=connections_max")
            writer.transport.abort()
            return
        self._connection_names += 1
        connection = Connection(reader, writer, self, f"c{self._connection_names}")
        self._connections[connection] = asyncio.current_task()
        self._alone.clear()
        self._deliveries.connection_opened(connection)
        logger.info(
            "event=connected connection=%s connections=%d", connection.name, self.connections
        )
        try:
            await connection.run(self._hello())
        finally:
            self._connections.pop(connection)
            if not self._connections:
                self._alone.set()
            lost = [i for i, carrier in self._carriers.items() if carrier is connection]
            self._end(lost, FinishReason.PEER_LOST)
            self._deliveries.connection_closed(connection)
            logger.info("event=disconnected connection=%s lost=%d", connection.name, len(lost))

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL_VERSION,
            engine_id=self._served.engine_id,
            model=self._served.model,
            bundle_hash=self._served.bundle_hash,
            limits=self._limits,
        )

    def _refusal(self, request_id: str) -> tuple[RefusalCode, str] | None:
        if self._drain_grace_s is not None:
            return RefusalCode.DRAINING, "the engine is shutting down"
        if request_id in self._carriers or request_id in self._deliveries:
            return RefusalCode.DUPLICATE_REQUEST_ID, f"{request_id} is known already"
        if len(self._carriers) + len(self._deliveries) >= self._journal.finishes_max:
            logger.warning("event=journal_full unacknowledged=%d", len(self._deliveries))
            return RefusalCode.QUEUE_FULL, "too many finishes are not acknowledged"
        return None

    def _end(
        self, request_ids: Sequence[str], reason: FinishReason, error_code: str | None = None
    ) -> None:
        message = "the engine shut down before the end" if error_code == DRAINING else None
        submitted = self._door.abort(request_ids, reason, error_code, message)
        fresh = [i for i in submitted if i not in self._ending]
        self._ending.update(fresh)
        self._step_loop.abort(fresh, reason, error_code=error_code, error_message=message)

    def _took_step(self, result: StepResult) -> None:
        for chunk in result.chunks:
            carrier = self._carriers[chunk.request_id]
            if not carrier.closed:
                carrier.push(chunk)
        for finish in result.finishes:
            carrier = self._carriers.pop(finish.request_id)
            self._ending.discard(finish.request_id)
            if finish.reason is FinishReason.REFUSED:
                carrier.refuse(finish)
            else:
                self._deliveries.add(finish, carrier)
        if not self._carriers:
            self._idle.set()

    def _died(self, error: BaseException) -> None:
        if not self._fatal.done():
            self._fatal.set_exception(error)

    async def _watch_steps(self) -> None:
        """Raises EngineStuck once work waits and no step ends."""
        seen_stuck = 0
        while seen_stuck < 2:
            await asyncio.sleep(self._stuck_s / STUCK_CHECKS)
            age_s = self._step_loop.stats().step_age_s
            seen_stuck = seen_stuck + 1 if age_s > self._stuck_s else 0
        raise EngineStuck(f"no step has ended for {age_s:.1f} s, with work waiting")

    async def _drain_when_asked(self) -> None:
        await self._drain_asked.wait()
        await self._wait_idle_within_grace()
        if self._carriers:
            logger.warning("event=drain_grace_over running=%d", len(self._carriers))
            self._end(list(self._carriers), FinishReason.ERROR, DRAINING)
            try:
                async with asyncio.timeout(ABORT_WAIT_S):
                    await self._idle.wait()
            except TimeoutError:
                raise EngineStuck("requests did not end after the drain") from None
        await self._wait_acknowledged()
        logger.info("event=drained unacknowledged=%d", len(self._deliveries))

    async def _wait_idle_within_grace(self) -> None:
        """Waits for running work; asking for a shorter grace meanwhile takes effect."""
        loop = asyncio.get_running_loop()
        started_at_s = loop.time()
        while self._carriers:
            self._drain_asked.clear()
            assert self._drain_grace_s is not None
            left_s = started_at_s + self._drain_grace_s - loop.time()
            if not await _any_set(self._idle, self._drain_asked, timeout_s=max(left_s, 0.0)):
                return

    async def _wait_acknowledged(self) -> None:
        """Waits for clients to settle what they were sent, while there is any client."""
        settled = self._deliveries.all_acknowledged
        await _any_set(settled, self._alone, timeout_s=ACK_WAIT_S)
        if not settled.is_set():
            logger.warning("event=drained_unacknowledged finishes=%d", len(self._deliveries))


async def _any_set(*events: asyncio.Event, timeout_s: float) -> bool:
    """Whether one of the events was set in time."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
