"""The compute thread: runs engine steps while there is work, sleeps on a condition while not.

It exchanges plain values with the event loop and never waits for it; sockets, the journal and
clients are unknown here. Started by the server; everything public is called from the event loop.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVarTuple

from inference.contracts import EngineStats, Finish, FinishReason, GenerationRequest, StepTrace
from inference.engine.engine import Engine, StepResult

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")

STOP_WAIT_S = 5.0
"""How long `stop` waits for the step in progress unless told otherwise."""


COMMANDS_PER_STEP_MAX = 64
"""So that a flood of requests, refused ones too, does not keep those that run from their step."""


@dataclass(frozen=True, slots=True)
class _Abort:
    request_ids: tuple[str, ...]
    reason: FinishReason
    error_code: str | None
    error_message: str | None


class StepLoop:
    """Owns the engine from `start` on. `on_result` and `on_fatal` are called in the event loop."""

    def __init__(
        self,
        engine: Engine,
        on_result: Callable[[StepResult], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._on_result = on_result
        self._on_fatal = on_fatal
        self._condition = threading.Condition()
        self._commands: deque[GenerationRequest | _Abort] = deque()
        self._stopping = False
        self._snapshot = engine.stats()
        self._stepped_at_s = 0.0
        self._outstanding = 0
        self._work_since_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)

    def start(self) -> None:
        """Starts the thread; results come to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self, wait_s: float = STOP_WAIT_S) -> bool:
        """Ends the thread after the step in progress; False if it did not end within `wait_s`."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def submit(self, request: GenerationRequest) -> None:
        """Hands over a request; its finish comes by `on_result`, refusals included."""
        if self._outstanding == 0:
            self._work_since_s = time.monotonic()
        self._outstanding += 1
        self._send(request)

    def abort(
        self,
        request_ids: Sequence[str],
        reason: FinishReason,
        *,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> None:
        """Ends requests after the step in progress; those that have ended stay as they are."""
        if request_ids:
            self._send(_Abort(tuple(request_ids), reason, error_code, error_message))

    def stats(self) -> EngineStats:
        """The state after the last step. `step_age_s` is measured here, on the event loop's side,
        so that a thread stuck inside a step shows."""
        age_s = 0.0
        if self._outstanding:
            age_s = time.monotonic() - max(self._stepped_at_s, self._work_since_s)
        return replace(self._snapshot, step_age_s=age_s)

    def trace(self) -> list[StepTrace]:
        """The last steps, oldest first."""
        return list(self._engine.counters.trace.copy())

    def _send(self, command: GenerationRequest | _Abort) -> None:
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._publish(self._apply_commands())
                if self._engine.has_work:
                    result = self._engine.step()
                    self._stepped_at_s = time.monotonic()
                    self._publish(result)
        except BaseException as error:
            logger.critical("event=step_loop_died", exc_info=error)
            self._call(self._on_fatal, error)

    def _wait_for_work(self) -> bool:
        if not self._engine.has_work and not self._commands:
            try:
                self._engine.check()
            except AssertionError:
                logger.exception("event=block_pool_inconsistent")
        with self._condition:
            while not (self._stopping or self._commands or self._engine.has_work):
                self._condition.wait()
            return not self._stopping

    def _apply_commands(self) -> StepResult:
        finishes: list[Finish] = []
        for _ in range(min(len(self._commands), COMMANDS_PER_STEP_MAX)):
            command = self._commands.popleft()
            if isinstance(command, GenerationRequest):
                refusal = self._engine.submit(command)
                if refusal is not None:
                    finishes.append(refusal)
                continue
            for request_id in command.request_ids:
                finish = self._engine.abort(
                    request_id,
                    command.reason,
                    error_code=command.error_code,
                    error_message=command.error_message,
                )
                if finish is not None:
                    finishes.append(finish)
        return StepResult(finishes=tuple(finishes))

    def _publish(self, result: StepResult) -> None:
        self._snapshot = self._engine.stats()
        if not result.chunks and not result.finishes:
            return
        self._call(self._deliver, result)

    def _deliver(self, result: StepResult) -> None:
        self._outstanding -= len(result.finishes)
        self._on_result(result)

    def _call(self, function: Callable[[*Args], object], *args: *Args) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The event loop closed while this thread still computed: nobody is left to tell.
            logger.warning("event=step_result_dropped")
