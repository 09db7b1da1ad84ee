"""What one web or worker process keeps for the pipeline: engine, limiter, live requests, watches.

The watches renew open holds, end what revoked keys and ended sessions have open, settle what the
engine reports for processes that died, and announce what moved. One runtime per process; the web's
ASGI lifespan or the worker's `batch_port` starts and closes it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

import redis.asyncio
import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

import billing.facade
import tenants.facade
from headrace import errors
from headrace.gateway.admission.minute_limits import scopes_of
from headrace.gateway.admission.quotes import QuoteCache
from headrace.gateway.admission.rate_limits import RateLimiter
from headrace.gateway.announcing import Announcer
from headrace.gateway.database import in_database
from headrace.gateway.orders import Caller, Order
from headrace.gateway.pipeline import Completion, OnAnswer
from headrace.gateway.services import Services
from headrace.gateway.settling.charging import Cause
from headrace.gateway.settling.settle import settle_orphans
from headrace.gateway.watched_sittings import WatchedSittings
from headrace.telemetry import metrics
from inference.client.native import EngineClient
from inference.contracts import Finish
from inference.tokenizer.bundle import load_bundle
from inference.tokenizer.prompt import PromptEncoder

log = structlog.get_logger(__name__)
Result = TypeVar("Result")


class GatewayRuntime:
    """The process's share of the gateway. Create it inside a running event loop."""

    def __init__(self) -> None:
        bundle = load_bundle(settings.MODEL_BUNDLE)
        self.model = bundle.name
        self.engine = EngineClient(settings.ENGINE_SOCKET, bundle.hash, self._settle_orphans)
        self.redis = redis.asyncio.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=settings.REDIS_TIMEOUT_S,
            socket_connect_timeout=settings.REDIS_TIMEOUT_S,
        )
        self.encoder = PromptEncoder(bundle)
        self.token_texts = self.encoder.token_texts
        self._announcer = Announcer(self.redis, self.engine)
        self._services = Services(
            engine=self.engine,
            encoder=self.encoder,
            limiter=RateLimiter(self.redis),
            quotes=QuoteCache(),
            holds=set(),
            spawn=self.spawn,
            moved=self._announcer.moved,
        )
        self.watched_keys: dict[object, tuple[UUID, Callable[[], None]]] = {}
        """Open sockets: their key, and what to call when it is revoked."""
        self.sittings = WatchedSittings()
        """Open sockets of people's sessions."""
        self.draining = False
        self._live: dict[UUID, Completion] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # any result: kept only from being collected
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connects to the engine (in the background) and starts the watches."""
        await self.engine.start()
        self._watches = [
            asyncio.create_task(self._every(settings.HOLD_RENEW_S, self._renew)),
            asyncio.create_task(self._every(settings.REVOCATION_POLL_S, self._poll_revocations)),
            asyncio.create_task(self._every(settings.ANNOUNCE_S, self._announcer.announce)),
            asyncio.create_task(self._every(settings.LIVE_CHECK_S, self.sittings.look)),
        ]

    async def close(self) -> None:
        """Ends what still runs with a final error, settles it, and lets go of everything."""
        self.draining = True
        for completion in list(self._live.values()):
            completion.cancel(Cause.DRAINING)
        await self._until_idle(settings.ABORT_TIMEOUT_S)
        unfinished = [*self._tasks, *self._watches]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self.engine.close()
        await self.redis.aclose()

    async def drain(self, grace_s: float) -> None:
        """Takes no new requests, and gives the live ones `grace_s` to end by themselves."""
        self.draining = True
        await self._until_idle(grace_s)

    def complete(
        self, caller: Caller, order: Order, on_answer: OnAnswer | None = None
    ) -> Completion:
        """Starts a request; raises ApiError 503 when this process takes no more."""
        if self.draining:
            raise errors.overloaded("The server is shutting down; try again.")
        if len(self._live) >= settings.REQUESTS_LIVE_MAX:
            metrics.LIMIT_HITS.labels("requests_live").inc()
            raise errors.overloaded("The server is at its limit of requests; try again shortly.")
        completion = Completion(self._services, caller, order, on_answer)
        self._live[caller.request_id] = completion
        metrics.REQUESTS_LIVE.inc()
        task = self.spawn(completion.run())
        task.add_done_callback(lambda _: self._ended(caller.request_id))
        return completion

    def spawn(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """A task that lives until it is done, whoever stops waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ended(self, request_id: UUID) -> None:
        self._live.pop(request_id, None)
        metrics.REQUESTS_LIVE.dec()

    async def _until_idle(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))

    # --- watches ----------------------------------------------------------------------------------

    async def _every(self, period_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await work()
            except (DatabaseError, InterfaceError) as error:
                log.warning("watch postponed: database away", error=str(error).strip())
            except Exception:  # a process edge: the next round must come whatever this one met
                log.exception("watch failed")

    async def _renew(self) -> None:
        if self._services.holds:
            await in_database(billing.facade.renew, list(self._services.holds))
        for completion in list(self._live.values()):
            caller = completion.caller
            if scopes := scopes_of(caller, completion.order.end_user):
                await self._services.limiter.renew(
                    caller.organization_id, caller.request_id, scopes
                )

    async def _poll_revocations(self) -> None:
        keys = {completion.caller.key_id for completion in self._live.values()}
        keys |= {key_id for key_id, _ in self.watched_keys.values()}
        if not keys:
            return
        revoked = await in_database(tenants.facade.revoked_among, keys)
        for completion in list(self._live.values()):
            if completion.caller.key_id in revoked:
                completion.cancel(Cause.KEY_REVOKED)
        for key_id, close in list(self.watched_keys.values()):
            if key_id in revoked:
                close()

    async def _settle_orphans(self, finishes: Sequence[Finish]) -> None:
        held = {request_id.hex for request_id in self._services.holds}
        strangers = [finish for finish in finishes if finish.request_id not in held]
        if strangers:
            await settle_orphans(strangers, self.model)
            self.engine.ack([finish.request_id for finish in strangers])
