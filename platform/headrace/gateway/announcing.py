"""What a web or worker process tells the others once a second: whose numbers moved, and its engine.

Ids and engines' counters only, never what anybody asked or was answered. It spares those who show
live numbers from asking the database whether there are new ones; a message that is lost costs
nobody more than a later look. Called by the runtime; heard by the console's pages and by workers.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import msgspec
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError

from headrace.gateway.engine_trail import TrailMark, grown
from headrace.telemetry import metrics
from inference.client.native import EngineClient, EngineUnavailable
from inference.contracts import EngineStats

MOVED_CHANNEL = "live:moved"
"""Ids of organizations, ID_BYTES each, and nothing between them."""
ENGINES_KEY = "live:engines"
"""Engine ids by when they last reported."""
ID_BYTES = 16
STATS_WAIT_S = 2.0
ASKED_MS = 900
"""Of all processes at an engine, one asks it in so long."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine's state at a moment, in seconds since the epoch."""

    at: float
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine now, and about a second before: what it does in a second is the difference."""

    engine_id: str
    model: str
    now: EngineReading
    before: EngineReading | None
    bundle_hash: str = ""
    seen_since: float = 0.0
    """Since when it has reported without a pause and without starting anew."""
    trail: tuple[TrailMark, ...] = ()
    """Of that time, the last ENGINE_TRAIL_S."""
    address: str = ""
    """Where the processes of this host reach it."""


class Announcer:
    """Collects what moved in this process. Belongs to one event loop."""

    def __init__(self, connection: redis.asyncio.Redis, engine: EngineClient) -> None:
        self._redis = connection
        self._engine = engine
        self._moved: set[UUID] = set()

    def moved(self, organization_id: UUID) -> None:
        """What this organization has used or holds is other than before."""
        if len(self._moved) < settings.ANNOUNCED_MAX:
            self._moved.add(organization_id)
        else:
            metrics.LIMIT_HITS.labels("announced").inc()

    async def announce(self) -> None:
        """Tells it, in one message each; what cannot be told is forgotten."""
        moved, self._moved = self._moved, set()
        try:
            if moved:
                ids = b"".join(organization_id.bytes for organization_id in moved)
                await self._redis.publish(MOVED_CHANNEL, ids)
            await self._report()
        except (RedisError, EngineUnavailable):
            return

    async def _report(self) -> None:
        hello = self._engine.hello
        if hello is None or not self._engine.connected:
            return
        asked = f"live:asked:{hello.engine_id}"
        if not await self._redis.set(asked, b"", px=ASKED_MS, nx=True):
            return
        reading = EngineReading(time.time(), await self._engine.stats(STATS_WAIT_S))
        key = _key(hello.engine_id)
        told = await self._redis.get(key)
        last = None if told is None else _report_in(told)
        if last is not None and last.now.stats.step <= reading.stats.step:
            seen_since, trail = last.seen_since, last.trail
        else:
            seen_since, trail = reading.at, ()
        report = EngineReport(
            hello.engine_id,
            hello.model,
            reading,
            last.now if last is not None else None,
            hello.bundle_hash,
            seen_since,
            grown(trail, reading.at, reading.stats),
            str(settings.ENGINE_SOCKET),
        )
        gone_at = reading.at - settings.ENGINE_GONE_S
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(key, msgspec.json.encode(report), ex=settings.ENGINE_GONE_S)
            pipeline.zadd(ENGINES_KEY, {hello.engine_id: reading.at})
            pipeline.zremrangebyscore(ENGINES_KEY, "-inf", gone_at)
            await pipeline.execute()


def moved_in(message: bytes) -> list[UUID]:
    """The organizations of a message on MOVED_CHANNEL."""
    return [UUID(bytes=message[at : at + ID_BYTES]) for at in range(0, len(message), ID_BYTES)]


async def engine_reports(connection: redis.asyncio.Redis) -> list[EngineReport]:
    """The engines that reported within ENGINE_GONE_S, by id; raises RedisError."""
    since = time.time() - settings.ENGINE_GONE_S
    found_ids = await connection.zrangebyscore(ENGINES_KEY, since, "+inf")
    engine_ids = sorted(cast("list[bytes]", found_ids))
    if not engine_ids:
        return []
    found = await connection.mget([_key(engine_id.decode()) for engine_id in engine_ids])
    return [_report_in(told) for told in found if told is not None]


def reports_now() -> list[EngineReport] | None:
    """The same for who is on a thread, over a connection of its own; None while Redis is away."""
    try:
        return asyncio.run(_reports())
    except (RedisError, OSError):
        return None


async def _reports() -> list[EngineReport]:
    async with redis.asyncio.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=settings.REDIS_TIMEOUT_S,
        socket_connect_timeout=settings.REDIS_TIMEOUT_S,
    ) as connection:
        return await engine_reports(connection)


def _report_in(told: bytes | str) -> EngineReport:
    return msgspec.json.decode(told, type=EngineReport)


def _key(engine_id: str) -> str:
    return f"live:engine:{engine_id}"
