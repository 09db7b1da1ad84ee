"""What all requests of a process share: made by the runtime, read by admission and pipeline."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

import billing.facade
from billing.contracts import HoldOutcome, HoldRequest, Settled, Settlement
from headrace.gateway.admission.quotes import QuoteCache
from headrace.gateway.admission.rate_limits import RateLimiter
from headrace.gateway.together import Together
from inference.client.native import EngineClient
from inference.tokenizer.prompt import PromptEncoder

Result = TypeVar("Result")


class Spawn(Protocol):
    """Starts a task that lives until it is done, whoever stops waiting for it."""

    def __call__(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """The running task."""


@dataclass(frozen=True, slots=True)
class Services:
    """`holds` are those that this process renews, and whose finishes it settles itself: from the
    hold's birth until its settle or void is written. `moved` is told of an organization whose
    numbers are other than before."""

    engine: EngineClient
    encoder: PromptEncoder
    limiter: RateLimiter
    quotes: QuoteCache
    holds: set[UUID]
    spawn: Spawn
    moved: Callable[[UUID], None]
    hold: Together[HoldRequest, HoldOutcome] = field(
        default_factory=lambda: Together(billing.facade.hold)
    )
    settle: Together[Settlement, Settled] = field(
        default_factory=lambda: Together(billing.facade.settle)
    )
