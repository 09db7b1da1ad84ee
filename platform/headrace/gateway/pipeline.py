"""The one way through the house: a request from hold to settle, as a task that owns both.

Dialects (SSE, socket, JSON, bulk) create a `Completion` and read chunks from it; they can cancel it
and tell it what they handed over, but never stop the task itself. So a client that vanishes at any
point, even before the first byte, cannot leave a hold open or a generation unbilled.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from billing.contracts import Settled, Settlement
from headrace import errors
from headrace.gateway.admission.admit import Admission, admit, release
from headrace.gateway.admission.minute_limits import Demand, scopes_of
from headrace.gateway.orders import Caller, Order
from headrace.gateway.request_ids import public_request_id
from headrace.gateway.services import Services
from headrace.gateway.settling import charging
from headrace.gateway.settling.charging import Cause
from headrace.gateway.settling.endings import cause_error, engine_error, refused_by_engine
from headrace.gateway.settling.settle import settle_until_done, void_until_done
from headrace.lifecycle.failpoints import Failpoint, reach
from headrace.telemetry import metrics
from inference.chunk_buffer import ChunkBuffer
from inference.client.native import EngineLost, EngineStream, EngineUnavailable
from inference.contracts import Chunk, Finish, FinishReason, TokenCounts

SETTLE_REPLY_WAIT_S = 5.0
"""A reply ends after its settle; with the database away, it ends after this and settles later."""

log = structlog.get_logger(__name__)

OnAnswer = Callable[[Sequence[Chunk], TokenCounts], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: regularly (`error` None, `reason` stop or length), or with an error to show.

    `settled` is None when nothing was charged, or when the charge could not be written yet.
    """

    reason: FinishReason
    counts: TokenCounts
    settled: Settled | None
    error: errors.ApiError | None


class Completion:
    """One request. Create it, `await opened()`, then read with `next_event()` up to the End, or
    all at once with `whole()`.

    What `next_event()` gives is the reader's to hand to the client's socket at once: it counts as
    delivered, and what a charge leaves out is never given. `on_answer`, used by bulk work, is
    awaited with a chunk per choice before the charge is made; if it answers False the answer counts
    as undelivered.
    """

    def __init__(
        self,
        services: Services,
        caller: Caller,
        order: Order,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self.caller = caller
        self.order = order
        self.cause: Cause | None = None
        self._services = services
        self._on_answer = on_answer
        self._arrived = time.monotonic()
        self._started = False
        self.opening: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        """For waiting on beside other things; never to be cancelled."""
        self._stream: EngineStream | None = None
        self._silence: asyncio.Timeout | None = None
        self._settling = False
        self._writing = False
        self._unread = ChunkBuffer(caller.request_id.hex)
        self._delivered = TokenCounts()
        self._end: End | None = None
        self._news = asyncio.Event()

    # --- the reader's side -----------------------------------------------------------------------

    async def opened(self) -> Admission:
        """Waits until the request holds its money and an engine has it; raises ApiError if not."""
        return await asyncio.shield(self.opening)

    async def next_event(self) -> Chunk | End:
        """What a choice gained, merged if the reader is slow, and at last the End."""
        while (event := self.ready()) is None:
            await self.news()
        return event

    def ready(self) -> Chunk | End | None:
        """What `next_event()` would give at once, if anything."""
        if (chunk := self._unread.take()) is not None:
            # Set here and not after the write: a settle may come in between.
            self._delivered = chunk.counts
            return chunk
        return self._end

    async def news(self) -> None:
        """Waits until there may be something ready, or somebody calls `wake()`."""
        self._news.clear()
        await self._news.wait()

    def wake(self) -> None:
        """Ends one `news()`, for a reader that also waits for something else."""
        self._news.set()

    async def whole(self) -> tuple[list[Chunk], End]:
        """Waits for the End; with it comes one chunk per choice: instead of `next_event()`."""
        while self._end is None:
            await self.news()
        return self._unread.take_all(), self._end

    @property
    def ended(self) -> bool:
        """Whether `whole()` would answer at once."""
        return self._end is not None

    @property
    def charged(self) -> bool:
        """Whether it has ended as a regular request, or early with something to pay."""
        if self._end is None:
            return False
        settled = self._end.settled
        return self._end.error is None or (settled is not None and settled.charge_pico > 0)

    def cancel(self, cause: Cause) -> None:
        """Ends the request early; what was computed until then is still settled. Idempotent."""
        if self.cause is not None or self._settling or self._end is not None:
            return
        self.cause = cause
        if self._stream is not None:
            # An engine that does not even read will be timed out.
            with contextlib.suppress(EngineUnavailable):
                self._stream.abort()
        if self._silence is not None:
            now = asyncio.get_running_loop().time()
            self._silence.reschedule(now + settings.ABORT_TIMEOUT_S)

    # --- the task's side -------------------------------------------------------------------------

    async def run(self) -> None:
        """Hold, compute, settle; never raises. Run by the runtime as a task of its own."""
        try:
            await self._run()
        except errors.ApiError as error:
            self._fail(error)
        except (DatabaseError, InterfaceError) as error:
            log.warning("database away", error=str(error).strip())
            self._fail(errors.overloaded("The database is away; try again shortly."))
        except Exception:  # a process edge: the reader must hear of it
            log.exception("request failed", request_id=public_request_id(self.caller.request_id))
            self._fail(errors.engine_failed("Internal error."))

    async def _run(self) -> None:
        services, request_id = self._services, self.caller.request_id
        if not services.engine.connected or services.engine.hello is None:
            raise errors.overloaded("No engine is available; try again shortly.")
        admission = await admit(self.caller, self.order, services, services.engine.hello)
        services.holds.add(request_id)
        services.moved(self.caller.organization_id)
        reach(Failpoint.HELD)
        try:
            await self._carry(admission)
        except (errors.ApiError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed", request_id=public_request_id(request_id))
            self._fail(errors.engine_failed("Internal error."))
            await self._abandon(admission)
        finally:
            if not self._writing:
                services.holds.discard(request_id)

    async def _carry(self, admission: Admission) -> None:
        """From the hold to the settle; raises ApiError when no engine takes the request."""
        services = self._services
        if self.cause is not None:
            await self._give_back()
            raise cause_error(self.cause)
        try:
            self._stream = services.engine.submit(admission.generation)
        except EngineUnavailable:
            await self._give_back()
            raise errors.overloaded("No engine is available; try again shortly.") from None
        reach(Failpoint.SUBMITTED)
        self.opening.set_result(admission)
        finish = await self._follow(self._stream)
        if finish is not None and finish.reason is FinishReason.REFUSED:
            await self._give_back()
            services.engine.ack([finish.request_id])
            self._finish(finish.reason, None, refused_by_engine(finish, self.order.blame))
            return
        await self._settle(admission, finish)

    async def _abandon(self, admission: Admission) -> None:
        """Something of ours broke between hold and settle: nobody pays for more than he got."""
        if self._writing:
            return
        if self._stream is None:
            await self._give_back()
            return
        with contextlib.suppress(EngineUnavailable):
            self._stream.abort()
        self.cause = Cause.FAULT
        await self._settle(admission, None)

    async def _follow(self, stream: EngineStream) -> Finish | None:
        """Passes text on until the engine's finish; None when the engine is lost or silent."""
        while True:
            try:
                return await self._listen(stream)
            except EngineLost:
                self.cause = self.cause or Cause.ENGINE_LOST
                return None
            except TimeoutError:
                if self.cause is not None:
                    # Aborted, and still no final counts: settle by what is known. A finish that
                    # comes after all is acknowledged without a second charge.
                    return None
                self.cancel(Cause.TIMED_OUT)

    async def _listen(self, stream: EngineStream) -> Finish:
        """Raises TimeoutError when the engine says nothing for too long, and EngineLost."""
        patience_s = (
            settings.ENGINE_SILENCE_MAX_S if self.cause is None else settings.ABORT_TIMEOUT_S
        )
        try:
            async with asyncio.timeout(patience_s) as self._silence:
                async for event in stream:
                    self._pass_on(event)
                    if isinstance(event, Finish):
                        return event
        finally:
            self._silence = None
        raise AssertionError("a stream ends with a finish or a loss")

    def _pass_on(self, event: Chunk | Finish) -> None:
        if self.order.stream and event.counts.completion and not self._started:
            self._started = True
            metrics.TIME_TO_FIRST_TOKEN.observe(time.monotonic() - self._arrived)
        if isinstance(event, Chunk):
            reach(Failpoint.CHUNK_RECEIVED)
            self._unread.add(event)
            self._news.set()
        if self._silence is not None and self.cause is None:
            now = asyncio.get_running_loop().time()
            self._silence.reschedule(now + settings.ENGINE_SILENCE_MAX_S)

    async def _settle(self, admission: Admission, finish: Finish | None) -> None:
        reach(Failpoint.FINISH_RECEIVED)
        # From here on nothing that happens to the client changes what is charged or said.
        self._settling = True
        request_id, model = self.caller.request_id, admission.quote.offer.public_id
        if finish is None:
            assert self.cause is not None
            # A client that left is charged by the last counts seen; our own faults by what was
            # handed over, which for bulk work is nothing.
            ours = self.cause in charging.OURS
            known = self._delivered if ours or self._on_answer is not None else self._computed()
            settlement = charging.settlement_of_lost(request_id, model, known, self.cause)
        else:
            if finish.reason in charging.REGULAR:
                # Complete before the cancellation took effect: an answer like any other.
                self.cause = None
            if not await self._answer(finish):
                self.cause = Cause.SUPERSEDED
            ours = charging.is_ours(finish, self.cause)
            settlement = charging.settlement(
                request_id,
                model,
                finish,
                self._delivered,
                self.cause,
                all_or_nothing=self._on_answer is not None,
            )
        if ours:
            # What nobody pays for, nobody gets.
            self._unread = ChunkBuffer(request_id.hex)
        settlement = replace(settlement, organization_id=self.caller.organization_id)
        self._writing = True
        writing = self._services.spawn(self._write(settlement, finish))
        done, _ = await asyncio.wait({writing}, timeout=SETTLE_REPLY_WAIT_S)
        settled = writing.result() if done else None
        reason = FinishReason.ERROR if finish is None else finish.reason
        self._finish(reason, settled, self._error(finish))

    async def _answer(self, finish: Finish) -> bool:
        if self._on_answer is None or finish.reason not in charging.REGULAR:
            return True
        return await self._on_answer(self._unread.take_all(), finish.counts)

    async def _write(self, settlement: Settlement, finish: Finish | None) -> Settled | None:
        try:
            settled = await settle_until_done(
                partial(self._services.settle, self.caller.organization_id), settlement
            )
        finally:
            self._services.holds.discard(settlement.request_id)
            self._services.moved(self.caller.organization_id)
        reach(Failpoint.SETTLED)
        if settled is not None and finish is not None:
            self._services.engine.ack([finish.request_id])
            reach(Failpoint.ACKNOWLEDGED)
        if scopes := scopes_of(self.caller, self.order.end_user):
            used = Demand(settlement.counts.prompt_tokens, settlement.counts.output_tokens)
            await self._services.limiter.reconcile(
                self.caller.organization_id, settlement.request_id, used, scopes
            )
        return settled

    async def _give_back(self) -> None:
        await release(self._services.limiter, self.caller, self.order)
        voiding = self._services.spawn(void_until_done(self.caller.request_id))
        await asyncio.wait({voiding}, timeout=SETTLE_REPLY_WAIT_S)
        self._services.moved(self.caller.organization_id)

    def _error(self, finish: Finish | None) -> errors.ApiError | None:
        if self.cause is not None:
            return cause_error(self.cause)
        if finish is None or finish.reason not in charging.REGULAR:
            return engine_error(finish, self.order.blame)
        return None

    def _fail(self, error: errors.ApiError) -> None:
        metrics.REQUESTS.labels(error.code or "refused").inc()
        if not self.opening.done():
            self.opening.set_exception(error)
            self.opening.exception()  # a reader that left must not leave a warning behind
        self._finish(FinishReason.ERROR, None, error)

    def _finish(
        self, reason: FinishReason, settled: Settled | None, error: errors.ApiError | None
    ) -> None:
        self._end = End(reason, self._computed(), settled, error)
        self._news.set()

    def _computed(self) -> TokenCounts:
        """As the engine last told."""
        return TokenCounts() if self._stream is None else self._stream.counts
