"""A pipeline by script, behind the pump's port: the world outside of bulk work."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar
from uuid import UUID, uuid4

from batch_jobs.ports import BulkAnswer, BulkOutcome, BulkRequest, EngineLoad, ModelTerms
from batch_jobs.pump.loop import Pump, PumpLimits
from batch_jobs.pump.verdicts import RetryLimits
from headrace.gateway.database import in_database

Params = ParamSpec("Params")
Result = TypeVar("Result")
Hook = Callable[[BulkRequest], Awaitable[None]]

CHARGE_PICO = 7
IDLE = EngineLoad(connected=True, running=0, waiting=0, kv_used_share=0.0)
LIMITS = PumpLimits(
    grace_s=600,
    in_flight_max=8,
    claim_max=8,
    claim_jobs_max=16,
    list_max=16,
    turn_s=20,
    stop_s=10,
    lease_s=60,
    renewals_max=100,
    retry=RetryLimits(attempts_max=3, retry_s=0.0),
)


def outcome(code: str, status_code: int = 500, **flags: bool) -> BulkOutcome:
    """A scripted end without an answer; the port puts the request's own id in."""
    return BulkOutcome(uuid4(), 0, status_code, code, f"about {code}", **flags)


@dataclass
class ScriptedPipeline:
    """Answers "answer to TEXT" and charges CHARGE_PICO for what was stored.

    `outcomes` has what to report instead, by a request's last message, one each time it is asked;
    `on_start` runs before each request.
    """

    outcomes: dict[str, list[BulkOutcome]] = field(default_factory=dict)
    on_start: Hook | None = None
    engine: EngineLoad = IDLE
    charges: dict[UUID, int] = field(default_factory=dict)
    asked: list[BulkRequest] = field(default_factory=list)
    live: int = 0
    live_max: int = 0
    aborted: list[UUID] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The last messages of all requests, in the order of asking."""
        return [text_of(request) for request in self.asked]

    def run(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        raise NotImplementedError("tests have a loop of their own")

    async def in_database(
        self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        return await in_database(call, *args, **kwargs)

    async def complete(
        self, request: BulkRequest, on_answer: Callable[[BulkAnswer], Awaitable[bool]]
    ) -> BulkOutcome | None:
        self.asked.append(request)
        self.live += 1
        self.live_max = max(self.live, self.live_max)
        try:
            await asyncio.sleep(0)
            if self.on_start is not None:
                await self.on_start(request)
            return await self._end(request, on_answer)
        except asyncio.CancelledError:
            self.aborted.append(request.request_id)
            raise
        finally:
            self.live -= 1

    async def _end(
        self, request: BulkRequest, on_answer: Callable[[BulkAnswer], Awaitable[bool]]
    ) -> BulkOutcome:
        text = text_of(request)
        self.charges[request.request_id] = 0
        if scripted := self.outcomes.get(text):
            return replace(scripted.pop(0), request_id=request.request_id)
        answer = f"answer to {text}"
        body = json.dumps({"answer": answer}).encode()
        if not await on_answer(BulkAnswer(request.request_id, body, answer, 10, 4, 3)):
            return BulkOutcome(request.request_id, 0, 499, "cancelled", "superseded", True)
        self.charges[request.request_id] = CHARGE_PICO
        return BulkOutcome(request.request_id, CHARGE_PICO)

    async def load(self) -> EngineLoad:
        return self.engine

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """None while this port has not settled it."""
        return self.charges.get(request_id)

    def terms(self, organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        raise NotImplementedError("a pump asks for no terms")

    def refusal(self, endpoint: str, body: Any) -> str | None:
        raise NotImplementedError("a pump asks for no refusals")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        raise NotImplementedError("a pump counts nothing")


def text_of(request: BulkRequest) -> str:
    """The last message of a request."""
    text: str = request.body["messages"][-1]["content"]
    return text


@dataclass
class Wakes:
    """How often workers were woken."""

    pumps: int = 0
    tendings: int = 0

    def pump(self) -> None:
        self.pumps += 1

    def tending(self) -> None:
        self.tendings += 1


def pump_of(port: ScriptedPipeline, wakes: Wakes | None = None, **limits: Any) -> Pump:
    """A worker's pump; create it inside the event loop it runs on."""
    wakes = wakes or Wakes()
    return Pump(port, replace(LIMITS, **limits), wakes.pump, wakes.tending)


def turn(port: ScriptedPipeline, wakes: Wakes | None = None, **limits: Any) -> bool:
    """One turn of a fresh worker, which is over when nothing of it is in flight."""

    async def scenario() -> bool:
        pump = pump_of(port, wakes, **limits)
        has_more = await pump.turn()
        await pump.drain()
        return has_more

    return asyncio.run(scenario())
