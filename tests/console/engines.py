"""Engines that say what they are told to, as a gateway reports them. For the console's tests."""

import asyncio
from typing import cast

import redis.asyncio
from django.conf import settings

from headrace.gateway.announcing import Announcer
from inference.client.native import EngineClient
from inference.contracts import EngineStats, Histogram, ModelLimits
from inference.protocol import Hello

IDLE = EngineStats(
    step=100,
    running=0,
    waiting=0,
    blocks_total=1000,
    blocks_used=0,
    blocks_cached=0,
    prompt_tokens=10_000,
    prompt_tokens_cached=1000,
    generation_tokens=5000,
    preemptions=0,
    finished={},
    journal_unacknowledged=0,
    step_age_s=0.0,
    histograms={
        "time_to_first_token_seconds": Histogram((1.0,), (5, 0), 1.0),
        "inter_token_latency_seconds": Histogram((1.0,), (90, 0), 2.0),
    },
)


class ToldEngine:
    """An engine whose numbers are `now`: idle at first."""

    connected = True

    def __init__(self, engine_id: str, model: str) -> None:
        self.hello = Hello(1, engine_id, model, "abc123", ModelLimits(100, 1000, 50, 0))
        self.now = IDLE

    async def stats(self, wait_s: float) -> EngineStats:
        """What it says when it is asked."""
        return self.now


def report_engine_of(model: str) -> None:
    """An engine serves this model from now on, for ENGINE_GONE_S."""

    async def told() -> None:
        engine = cast("EngineClient", ToldEngine(f"engine-of-{model}", model))
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as connection:
            await Announcer(connection, engine).announce()

    asyncio.run(told())
