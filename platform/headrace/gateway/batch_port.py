"""The completion port of bulk work: the same pipeline, at batch priority and price.

Runs on the worker. The pipeline lives on an event loop in a thread of its own; the pump's
callbacks run on the pump's thread, through a queue. One runtime per worker process, started with
the worker so that it also settles what the engine kept for processes that died.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

import billing.facade
import tenants.facade
from batch_jobs.ports import BatchAnswer, BatchCompletion, BatchCompletionResult
from billing.contracts import ModelNotFound, ReceiptNotFound, ServiceTier
from headrace import errors
from headrace.gateway.database import in_database
from headrace.gateway.openai.chat_request import parse_chat_request
from headrace.gateway.orders import Caller
from headrace.gateway.runtime import GatewayRuntime
from inference.client.native import EngineUnavailable
from inference.contracts import Chunk, FinishReason, TokenCounts

ENGINE_WAIT_S = 30.0
"""How long a fresh worker waits for its engine before it defers bulk work."""
OURS_TO_REPEAT = frozenset({errors.duplicate_request().status, errors.cancelled().status})
Result = TypeVar("Result")


class WorkerRuntime:
    """A `GatewayRuntime` on a background event loop, for synchronous callers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        self.runtime = self.call(self._start()).result()

    def call(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Runs a coroutine on the background loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Ends what runs, settles it, and stops the loop."""
        self.call(self.runtime.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _start(self) -> GatewayRuntime:
        runtime = GatewayRuntime()
        await runtime.start()
        return runtime


class BatchPort:
    """Implements `batch_jobs.ports.CompletionPort`; starts its runtime at the first use."""

    def __init__(self) -> None:
        self._worker: WorkerRuntime | None = None
        self._starting = threading.Lock()

    def start(self) -> WorkerRuntime:
        """The process's runtime, started if it is not yet running."""
        with self._starting:
            if self._worker is None:
                self._worker = WorkerRuntime()
            return self._worker

    def close(self) -> None:
        """Ends the runtime, if there is one."""
        with self._starting:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def complete(
        self,
        completions: Sequence[BatchCompletion],
        on_answer: Callable[[BatchAnswer], bool],
        on_result: Callable[[BatchCompletionResult], None],
    ) -> None:
        """See the port. Returns when every completion has ended."""
        worker = self.start()
        calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        everything = worker.call(_run_all(worker.runtime, completions, calls, on_answer, on_result))
        everything.add_done_callback(lambda _: calls.put(None))
        while (call := calls.get()) is not None:
            call()
        everything.result()

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """See the port."""
        try:
            receipt = billing.facade.receipt(organization_id, request_id)
        except ReceiptNotFound:
            return 0
        return None if receipt.state == "open" else receipt.charge_pico

    def knows_model(self, organization_id: UUID, project_id: UUID, model: str) -> bool:
        """See the port."""
        try:
            billing.facade.quote(organization_id, project_id, model, ServiceTier.BATCH)
        except ModelNotFound:
            return False
        return True


batch_port = BatchPort()
"""The port of this process; the wiring hands it to batch_jobs, the worker starts and closes it."""

Calls = queue.SimpleQueue[Callable[[], None] | None]


async def _run_all(
    runtime: GatewayRuntime,
    completions: Sequence[BatchCompletion],
    calls: Calls,
    on_answer: Callable[[BatchAnswer], bool],
    on_result: Callable[[BatchCompletionResult], None],
) -> None:
    with contextlib.suppress(EngineUnavailable):  # each item then says so, and is deferred
        await runtime.engine.wait_connected(ENGINE_WAIT_S)

    async def run(completion: BatchCompletion) -> None:
        result = await _run_one(runtime, completion, calls, on_answer)
        if result is not None:
            calls.put(lambda: on_result(result))

    # One that breaks must not take the caller's thread away from the others.
    outcomes = await asyncio.gather(
        *(run(completion) for completion in completions), return_exceptions=True
    )
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _run_one(
    runtime: GatewayRuntime,
    item: BatchCompletion,
    calls: Calls,
    on_answer: Callable[[BatchAnswer], bool],
) -> BatchCompletionResult | None:
    async def store(chunks: Sequence[Chunk], counts: TokenCounts) -> bool:
        (chunk,) = chunks
        answer = BatchAnswer(
            item.request_id, chunk.text, counts.prompt, counts.cached, counts.completion
        )
        return await _on_callers_thread(calls, lambda: on_answer(answer))

    try:
        rules = await in_database(tenants.facade.key_rules, item.organization_id, item.key_id)
        caller = Caller(
            item.request_id,
            item.organization_id,
            item.project_id,
            item.key_id,
            ServiceTier.BATCH,
            limits=None,
            rules=rules,
        )
        order = parse_chat_request(item.body)
        if order.choices != 1:  # an item stores one answer
            raise errors.unsupported("n")
        completion = runtime.complete(caller, order, store)
        await completion.opened()
    except errors.ApiError as error:
        return _failed(
            item, error, deferred=error.status >= 500 or await _may_fit_later(item, error)
        )
    _, end = await completion.whole()
    if end.error is not None:
        refused = end.reason is FinishReason.REFUSED
        return _failed(item, end.error, deferred=refused and end.error.status >= 500)
    if end.settled is None:
        return None
    return BatchCompletionResult(item.request_id, end.settled.charge_pico)


def _failed(
    item: BatchCompletion, error: errors.ApiError, *, deferred: bool
) -> BatchCompletionResult:
    return BatchCompletionResult(
        item.request_id,
        charge_pico=0,
        error_code=error.code or error.type,
        error_message=error.message,
        retryable=deferred or error.status >= 500 or error.status in OURS_TO_REPEAT,
        deferred=deferred,
    )


async def _may_fit_later(item: BatchCompletion, error: errors.ApiError) -> bool:
    """Whether a balance or quota that is too small now is only taken up by open holds."""
    if error.code != "insufficient_quota":
        return False
    balance = await in_database(billing.facade.balance, item.organization_id)
    return balance.held_pico > 0


async def _on_callers_thread(calls: Calls, call: Callable[[], bool]) -> bool:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def run() -> None:
        stored = False
        try:
            stored = call()
        finally:
            loop.call_soon_threadsafe(answer.set_result, stored)

    calls.put(run)
    return await answer
