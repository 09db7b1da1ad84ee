"""Minute limits of an organization: requests, tokens, and requests under way.

A sliding minute, kept exactly in Redis by one Lua script; a request reserves its prompt and the
most it may generate, and is corrected to what it used when it ends. The request id is the member,
so release and reconcile are idempotent. While Redis is away each process enforces the same limits
by itself (`LocalLimits`): N processes then admit at most N times as much, and money is unaffected,
since holds live in PostgreSQL.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from headrace import errors
from headrace.gateway.orders import MinuteLimits
from headrace.telemetry import metrics

WINDOW_MS = 60_000
PLACE_LEASE_MS = 120_000
"""A place under `concurrent_requests_max` lapses after this long without a renewal."""
REDIS_RETRY_S = 2.0
"""After a failure the local bound decides for this long before Redis is asked again."""
LOCAL_ORGANIZATIONS_MAX = 10_000
LOCAL_CONCURRENCY_WAIT_MS = 1_000

log = structlog.get_logger(__name__)
_SCRIPT = (Path(__file__).parent / "rate_limits.lua").read_text()


@dataclass(frozen=True, slots=True)
class LimitState:
    """Where an organization stands after a decision; `refused` is '' when admitted."""

    refused: str
    wait_ms: int
    limits: MinuteLimits
    requests_remaining: int
    tokens_remaining: int
    reset_ms: int

    def headers(self) -> dict[str, str]:
        """OpenAI's x-ratelimit headers; durations in Go's notation."""
        reset = go_duration(self.reset_ms)
        return {
            "x-ratelimit-limit-requests": str(self.limits.requests_max),
            "x-ratelimit-limit-tokens": str(self.limits.tokens_max),
            "x-ratelimit-remaining-requests": str(self.requests_remaining),
            "x-ratelimit-remaining-tokens": str(self.tokens_remaining),
            "x-ratelimit-reset-requests": reset,
            "x-ratelimit-reset-tokens": reset,
        }


def go_duration(milliseconds: int) -> str:
    """Milliseconds as Go prints durations: 20ms, 1.5s, 1m0s."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    seconds = f"{rest_ms / 1000:g}s"
    return f"{minutes}m{seconds}" if minutes else seconds


def refusal(state: LimitState, tokens: int) -> errors.ApiError:
    """The 429 for a refused reservation."""
    if state.refused == "tokens" and tokens > state.limits.tokens_max:
        error = errors.rate_limited(
            "tokens",
            f"Request too large: it may use {tokens} tokens, the limit is "
            f"{state.limits.tokens_max} tokens per minute. Lower max_completion_tokens or shorten "
            "the prompt.",
            WINDOW_MS / 1000,
        )
        error.should_retry = False
        error.extra_headers = state.headers()
        return error
    text = {
        "requests": f"Limit of {state.limits.requests_max} requests per minute reached.",
        "tokens": f"Limit of {state.limits.tokens_max} tokens per minute reached.",
        "concurrency": "Too many requests at once.",
    }[state.refused]
    kind = "tokens" if state.refused == "tokens" else "requests"
    error = errors.rate_limited(
        kind, f"{text} Please try again in {go_duration(state.wait_ms)}.", state.wait_ms / 1000
    )
    error.extra_headers = state.headers()
    return error


@dataclass(slots=True)
class _Window:
    admitted: "OrderedDict[str, tuple[int, int]]" = field(default_factory=OrderedDict)
    live: set[str] = field(default_factory=set)
    tokens: int = 0


class LocalLimits:
    """The same limits inside one process; takes the clock as an argument, does no I/O."""

    def __init__(self) -> None:
        self._windows: OrderedDict[UUID, _Window] = OrderedDict()

    def reserve(
        self,
        organization_id: UUID,
        request_id: str,
        tokens: int,
        limits: MinuteLimits,
        now_ms: int,
    ) -> LimitState:
        """Admits or refuses; admitted requests count from `now_ms` on. Replaces an earlier
        reservation of the same request, also by a refusal."""
        self.end(organization_id, request_id, None)
        window = self._windows.setdefault(organization_id, _Window())
        self._windows.move_to_end(organization_id)
        while len(self._windows) > LOCAL_ORGANIZATIONS_MAX:
            self._windows.popitem(last=False)
        while window.admitted:
            oldest_id, (at_ms, used) = next(iter(window.admitted.items()))
            if at_ms > now_ms - WINDOW_MS:
                break
            del window.admitted[oldest_id]
            window.tokens -= used
        wait_ms = WINDOW_MS
        if window.admitted:
            wait_ms = max(1, next(iter(window.admitted.values()))[0] + WINDOW_MS - now_ms)
        refused = ""
        if len(window.admitted) + 1 > limits.requests_max:
            refused = "requests"
        elif window.tokens + tokens > limits.tokens_max:
            refused = "tokens"
        elif len(window.live) + 1 > limits.concurrent_max:
            refused, wait_ms = "concurrency", LOCAL_CONCURRENCY_WAIT_MS
        else:
            window.admitted[request_id] = (now_ms, tokens)
            window.tokens += tokens
            window.live.add(request_id)
        return LimitState(
            refused,
            wait_ms if refused else 0,
            limits,
            max(0, limits.requests_max - len(window.admitted)),
            max(0, limits.tokens_max - window.tokens),
            wait_ms,
        )

    def end(self, organization_id: UUID, request_id: str, used_tokens: int | None) -> None:
        """Frees the place; corrects the tokens, or forgets the request when None was served."""
        window = self._windows.get(organization_id)
        if window is None:
            return
        window.live.discard(request_id)
        if request_id in window.admitted:
            at_ms, reserved = window.admitted[request_id]
            window.tokens += (used_tokens or 0) - reserved
            if used_tokens is None:
                del window.admitted[request_id]
            else:
                window.admitted[request_id] = (at_ms, used_tokens)


class RateLimiter:
    """Redis first, the local bound while Redis is away. One per process."""

    def __init__(self, connection: redis.asyncio.Redis) -> None:
        self._script = connection.register_script(_SCRIPT)
        self._local = LocalLimits()
        self._away_until = 0.0

    async def reserve(
        self, organization_id: UUID, request_id: UUID, tokens: int, limits: MinuteLimits
    ) -> LimitState:
        """Counts a request that may use up to `tokens`; `refused` says if it may not run.

        Replaces an earlier reservation of the same request, also by a refusal.
        """
        answer = await self._run(
            organization_id,
            "reserve",
            request_id,
            tokens,
            limits.requests_max,
            limits.tokens_max,
            limits.concurrent_max,
            PLACE_LEASE_MS,
        )
        if answer is None:
            return self._local.reserve(
                organization_id, request_id.hex, tokens, limits, time.monotonic_ns() // 1_000_000
            )
        refused, *numbers = answer
        assert isinstance(refused, bytes)
        wait_ms, requests_remaining, tokens_remaining, reset_ms = map(int, numbers)
        return LimitState(
            refused.decode(), wait_ms, limits, requests_remaining, tokens_remaining, reset_ms
        )

    async def release(self, organization_id: UUID, request_id: UUID) -> None:
        """Gives everything back: the request was refused further on."""
        self._local.end(organization_id, request_id.hex, None)
        await self._run(organization_id, "release", request_id)

    async def reconcile(self, organization_id: UUID, request_id: UUID, used_tokens: int) -> None:
        """Ends a request that used `used_tokens`."""
        self._local.end(organization_id, request_id.hex, used_tokens)
        await self._run(organization_id, "reconcile", request_id, used_tokens)

    async def renew(self, organization_id: UUID, request_id: UUID) -> None:
        """Keeps the place of a request that is still under way."""
        await self._run(organization_id, "renew", request_id, PLACE_LEASE_MS)

    async def _run(
        self, organization_id: UUID, action: str, request_id: UUID, *arguments: int
    ) -> list[bytes | int] | None:
        if time.monotonic() < self._away_until:
            return None
        tag = f"limits:{{{organization_id.hex}}}"
        keys = [f"{tag}:admitted", f"{tag}:tokens", f"{tag}:live"]
        try:
            answer: list[bytes | int] = await self._script(
                keys=keys, args=[action, request_id.hex, *arguments]
            )
        except (TimeoutError, RedisError, OSError) as error:
            self._away_until = time.monotonic() + REDIS_RETRY_S
            metrics.REDIS_FALLBACKS.inc()
            log.warning("redis is away: minute limits are per process for now", error=str(error))
            return None
        return answer
