"""Minute limits, kept in Redis: requests, tokens, and requests under way, of each scope.

A sliding minute, counted exactly by one Lua script in one call for all scopes of a request
(organization, project, key, end user); a request reserves its prompt and the most it may generate,
and is corrected to what it used when it ends. The request id is the member, so release and
reconcile are idempotent. While Redis is away `LocalLimits` decides; money and quotas are
unaffected, since they live in PostgreSQL.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from headrace.gateway.admission.local_limits import LocalLimits
from headrace.gateway.admission.minute_limits import (
    METRICS,
    Demand,
    LimitScope,
    LimitState,
    Standing,
)
from headrace.gateway.admission.script_calls import ScriptCalls
from headrace.telemetry import metrics

PLACE_LEASE_MS = 120_000
"""A place under a limit of concurrency lapses after this long without a renewal."""
REDIS_RETRY_S = 2.0
"""After a failure the local bound decides for this long before Redis is asked again."""
UNLIMITED = -1
STANDING_LENGTH = 4
"""Numbers that the script answers of each scope."""

log = structlog.get_logger(__name__)
SCRIPT = (Path(__file__).parent / "rate_limits.lua").read_text()


class RateLimiter:
    """Redis first, the local bound while Redis is away. One per process."""

    def __init__(self, connection: redis.asyncio.Redis) -> None:
        self._script = ScriptCalls(connection, SCRIPT)
        self._local = LocalLimits()
        self._away_until = 0.0

    async def reserve(
        self,
        organization_id: UUID,
        request_id: UUID,
        demand: Demand,
        scopes: Sequence[LimitScope],
    ) -> LimitState:
        """Counts a request that may use up to `demand`; `refused` says if it may not run.

        All scopes admit it or none counts it. Replaces an earlier reservation of the same request,
        also by a refusal.
        """
        limits = [
            UNLIMITED if (limit := scope.limit(metric)) is None else limit
            for scope in scopes
            for metric in METRICS
        ]
        answer = await self._run(
            organization_id,
            "reserve",
            request_id,
            scopes,
            demand.input_tokens,
            demand.output_tokens,
            PLACE_LEASE_MS,
            *limits,
        )
        if answer is None:
            now_ms = time.monotonic_ns() // 1_000_000
            return self._local.reserve(organization_id, request_id.hex, demand, scopes, now_ms)
        refused, *numbers = answer
        assert isinstance(refused, bytes)
        refused_by, wait_ms, *used = map(int, numbers)
        standings = tuple(
            Standing(*used[start : start + STANDING_LENGTH])
            for start in range(0, len(used), STANDING_LENGTH)
        )
        return LimitState(tuple(scopes), standings, refused.decode(), refused_by, wait_ms)

    async def release(
        self, organization_id: UUID, request_id: UUID, scopes: Sequence[LimitScope]
    ) -> None:
        """Gives everything back: the request was refused further on."""
        self._local.end(organization_id, request_id.hex, scopes, None)
        await self._run(organization_id, "release", request_id, scopes)

    async def reconcile(
        self,
        organization_id: UUID,
        request_id: UUID,
        used: Demand,
        scopes: Sequence[LimitScope],
    ) -> None:
        """Ends a request that used `used`."""
        self._local.end(organization_id, request_id.hex, scopes, used)
        await self._run(
            organization_id,
            "reconcile",
            request_id,
            scopes,
            used.input_tokens,
            used.output_tokens,
        )

    async def renew(
        self, organization_id: UUID, request_id: UUID, scopes: Sequence[LimitScope]
    ) -> None:
        """Keeps the place of a request that is still under way."""
        await self._run(organization_id, "renew", request_id, scopes, PLACE_LEASE_MS)

    async def _run(
        self,
        organization_id: UUID,
        action: str,
        request_id: UUID,
        scopes: Sequence[LimitScope],
        *arguments: int,
    ) -> list[bytes | int] | None:
        if time.monotonic() < self._away_until:
            return None
        try:
            keys = counters_of(organization_id, scopes)
            answer = await self._script(keys, [action, request_id.hex, *arguments])
        except (TimeoutError, RedisError, OSError) as error:
            self._away_until = time.monotonic() + REDIS_RETRY_S
            metrics.REDIS_FALLBACKS.inc()
            log.warning("redis is away: minute limits are per process for now", error=str(error))
            return None
        return answer


def counters_of(organization_id: UUID, scopes: Sequence[LimitScope]) -> list[str]:
    """What the script's KEYS are for these scopes."""
    keys = []
    for scope in scopes:
        # In braces what a cluster hashes: the keys of one organization stay together.
        name = f"limits:{{{organization_id.hex}}}:{scope.name}:{scope.subject}"
        keys += [f"{name}:admitted", f"{name}:tokens", f"{name}:live"]
    return keys
