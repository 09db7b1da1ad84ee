"""The pipeline port of bulk work: the same pipeline, at batch priority and price.

The pipeline of a worker lives on an event loop in a thread of its own, and so does all that the
pump does between claims. One runtime per worker process, started with the worker, so that it also
settles what the engine kept for processes that died. What the port can tell without an engine
(terms, refusals, counts of tokens) the web process asks too.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django.conf import settings

import billing.facade
import tenants.facade
from batch_jobs.ports import BulkAnswer, BulkOutcome, BulkRequest, EngineLoad, ModelTerms
from billing.contracts import (
    ModelNotFound,
    ModelRetired,
    QuotaScope,
    ReceiptNotFound,
    ServiceTier,
)
from headrace import errors
from headrace.gateway.database import in_database
from headrace.gateway.openai.answering import Answering
from headrace.gateway.openai.generation_route import GenerationRoute, encoded
from headrace.gateway.orders import Caller, Order
from headrace.gateway.pipeline import Completion, OnAnswer
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.settling.charging import Cause
from headrace.gateway.transport.token_routes import ROUTES
from inference.client.native import EngineUnavailable
from inference.contracts import Chunk, FinishReason, TokenCounts
from inference.tokenizer.bundle import load_bundle
from inference.tokenizer.prompt import PromptEncoder
from tenants.contracts import KeyRules

LOAD_TTL_S = 0.25
LOAD_WAIT_S = 2.0
"""An engine that does not tell how busy it is for so long counts as away."""
NO_LOAD = EngineLoad(connected=False, running=0, waiting=0, kv_used_share=0.0)
RULES_TTL_S = 2.0
"""As long as a revocation may take."""
RULES_MAX = 1024
OURS_TO_REPEAT = frozenset({errors.duplicate_request().status, errors.cancelled().status})
AWAY = errors.overloaded("").status
KEYS_FAULT = frozenset({401, 403})
"""What the key, its project or its organization may not do now, whatever is asked."""
BULK_ROUTES: Mapping[str, GenerationRoute] = {
    path: route for path, (_, route) in ROUTES.items() if isinstance(route, GenerationRoute)
}
Params = ParamSpec("Params")
Result = TypeVar("Result")
OnBulkAnswer = Callable[[BulkAnswer], Awaitable[bool]]


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
        self._loop.close()

    async def _start(self) -> GatewayRuntime:
        runtime = GatewayRuntime()
        await runtime.start()
        return runtime


class BatchPort:
    """Implements `batch_jobs.ports.PipelinePort`; starts its runtime at the first use."""

    def __init__(self) -> None:
        self._worker: WorkerRuntime | None = None
        self._encoder: PromptEncoder | None = None
        self._starting = threading.Lock()
        self._load = (0.0, NO_LOAD)
        self._rules: dict[UUID, tuple[float, KeyRules]] = {}

    def start(self) -> WorkerRuntime:
        """The process's runtime, started if it is not yet running."""
        with self._starting:
            if self._worker is None:
                self._worker = WorkerRuntime()
                self._encoder = self._worker.runtime.encoder
            return self._worker

    def close(self) -> None:
        """Ends the runtime, if there is one."""
        with self._starting:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def run(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """See the port."""
        return self.start().call(work)

    async def in_database(
        self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """See the port."""
        return await in_database(call, *args, **kwargs)

    async def complete(self, request: BulkRequest, on_answer: OnBulkAnswer) -> BulkOutcome | None:
        """See the port."""
        runtime = self.start().runtime
        try:
            order = _parse(request.endpoint, request.body)
            rules = await self._rules_of(request)
            store = _store(request, order, runtime, on_answer)
            completion = runtime.complete(_caller(request, rules), order, store)
        except errors.ApiError as error:
            return _refused(request, error)
        try:
            return await _outcome(request, completion)
        except asyncio.CancelledError:
            completion.cancel(Cause.SUPERSEDED)
            raise

    async def load(self) -> EngineLoad:
        """See the port; at most LOAD_TTL_S old."""
        read_at, load = self._load
        if time.monotonic() - read_at > LOAD_TTL_S:
            load = await _load(self.start().runtime)
            self._load = time.monotonic(), load
        return load

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """See the port."""
        try:
            receipt = billing.facade.receipt(organization_id, request_id)
        except ReceiptNotFound:
            return 0
        return None if receipt.state == "open" else receipt.charge_pico

    def terms(self, organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        """See the port."""
        try:
            batch, interactive = (
                billing.facade.quote(organization_id, project_id, model, tier)
                for tier in (ServiceTier.BATCH, ServiceTier.INTERACTIVE)
            )
        except (ModelNotFound, ModelRetired):
            return None
        offer = batch.offer
        return ModelTerms(
            public_id=offer.public_id,
            context_tokens_max=offer.context_tokens_max,
            output_tokens_max=offer.output_tokens_max,
            currency=batch.currency,
            input_micros_per_mtok=batch.input_micros_per_mtok,
            cached_input_micros_per_mtok=batch.cached_input_micros_per_mtok,
            output_micros_per_mtok=batch.output_micros_per_mtok,
            interactive_input_micros_per_mtok=interactive.input_micros_per_mtok,
            interactive_cached_input_micros_per_mtok=interactive.cached_input_micros_per_mtok,
            interactive_output_micros_per_mtok=interactive.output_micros_per_mtok,
        )

    def refusal(self, endpoint: str, body: Any) -> str | None:  # JSON of a foreign shape
        """See the port."""
        try:
            _parse(endpoint, body)
        except errors.ApiError as error:
            return error.message
        return None

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """See the port."""
        with self._starting:
            if self._encoder is None:
                self._encoder = PromptEncoder(load_bundle(settings.MODEL_BUNDLE))
        encoder = self._encoder
        return [len(encoder.encode_text(text)) for text in texts]

    async def _rules_of(self, request: BulkRequest) -> KeyRules:
        hit = self._rules.get(request.key_id)
        if hit is not None and hit[0] > time.monotonic():
            return hit[1]
        rules = await in_database(tenants.facade.key_rules, request.organization_id, request.key_id)
        if len(self._rules) >= RULES_MAX:
            self._rules.clear()
        self._rules[request.key_id] = time.monotonic() + RULES_TTL_S, rules
        return rules


batch_port = BatchPort()
"""The port of this process; the wiring hands it to batch_jobs, the worker starts and closes it."""


def _route(endpoint: str) -> GenerationRoute:
    route = BULK_ROUTES.get(endpoint)
    if route is None:
        raise errors.invalid(f"'{endpoint}' cannot be asked in bulk.", "url")
    return route


def _parse(endpoint: str, body: Any) -> Order:  # JSON of a foreign shape
    order = _route(endpoint).parse(body)
    if order.stream:
        raise errors.invalid("'stream' must be false here: nobody reads along.", "stream")
    return order


def _caller(request: BulkRequest, rules: KeyRules) -> Caller:
    return Caller(
        request.request_id,
        request.organization_id,
        request.project_id,
        request.key_id,
        ServiceTier.BATCH,
        limits=None,
        rules=rules,
        bound_pico=request.bound_pico,
    )


def _store(
    request: BulkRequest, order: Order, runtime: GatewayRuntime, on_answer: OnBulkAnswer
) -> OnAnswer:
    """What the pipeline calls with a complete answer."""
    framing = _route(request.endpoint).framing(
        Answering(request.request_id, int(time.time()), order, runtime.token_texts)
    )

    async def store(chunks: Sequence[Chunk], counts: TokenCounts) -> bool:
        return await on_answer(
            BulkAnswer(
                request_id=request.request_id,
                body=await encoded(framing, chunks, counts),
                text=min(chunks, key=lambda chunk: chunk.choice).text,
                prompt_tokens=counts.prompt,
                cached_tokens=counts.cached,
                completion_tokens=counts.completion,
            )
        )

    return store


async def _outcome(request: BulkRequest, completion: Completion) -> BulkOutcome | None:
    try:
        await completion.opened()
    except errors.ApiError as error:
        return _refused(request, error)
    _, end = await completion.whole()
    if end.error is None:
        if end.settled is None:
            return None
        return BulkOutcome(request.request_id, end.settled.charge_pico)
    if end.reason is FinishReason.REFUSED:
        # By an engine that is full, or for what the request is; what we do not know ends some day.
        return _failed(request, end.error, deferred=end.error.status == AWAY)
    return _failed(request, end.error, job_wide=end.error.status in KEYS_FAULT)


def _refused(request: BulkRequest, error: errors.ApiError) -> BulkOutcome:
    """Nothing reached an engine: there is none, or the request may not run, now or ever."""
    if isinstance(error, errors.AboveBound):
        return replace(_failed(request, error, deferred=True), bound_pico=error.amount_pico)
    if isinstance(error, errors.QuotaUsedUp) and error.quota is not None:
        is_job_wide = error.quota.scope is not QuotaScope.END_USER
        resets_in_s = (error.quota.resets_at - datetime.now(UTC)).total_seconds()
        outcome = _failed(request, error, deferred=True, job_wide=is_job_wide)
        return replace(outcome, resets_in_s=resets_in_s)
    if error.status == AWAY or error.status in KEYS_FAULT or error.code == "insufficient_quota":
        # A balance that open holds take up is the whole job's, too: else each of its lines would
        # be claimed, read and refused again and again. The first wait is short.
        return _failed(request, error, deferred=True, job_wide=True)
    return _failed(request, error)


def _failed(
    request: BulkRequest, error: errors.ApiError, *, deferred: bool = False, job_wide: bool = False
) -> BulkOutcome:
    ours = error.status >= 500 or error.status in OURS_TO_REPEAT
    return BulkOutcome(
        request.request_id,
        charge_pico=0,
        status_code=error.status,
        error_code=error.code or error.type,
        error_message=error.message,
        retryable=deferred or job_wide or ours,
        deferred=deferred,
        job_wide=job_wide,
    )


async def _load(runtime: GatewayRuntime) -> EngineLoad:
    try:
        stats = await runtime.engine.stats(LOAD_WAIT_S)
    except EngineUnavailable:
        return NO_LOAD
    return EngineLoad(
        connected=True,
        running=stats.running,
        waiting=stats.waiting,
        kv_used_share=stats.blocks_used / max(1, stats.blocks_total),
        interactive_live=stats.interactive_running + stats.interactive_waiting > 0,
        interactive_waiting=stats.interactive_waiting,
    )
