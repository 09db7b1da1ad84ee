"""How many requests of the REST half one actor and one address may make in a minute.

Counted in Redis for all processes together, and in each by itself while Redis is away. Spares the
house, proves nothing: who somebody is was decided before. A window begins with its first request
and ends a minute later. Called by every management view, by middleware for all other pages, and by
the socket of pages that stay open.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from uuid import UUID

import redis
import structlog
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.utils.deprecation import MiddlewareMixin
from redis.exceptions import RedisError

from headrace import errors
from headrace.client_address import subscriber_of
from headrace.request_origin import address_of
from headrace.telemetry import metrics

WINDOW_MS = 60_000
SUBJECTS_MAX = 20_000
"""Counters of one process without Redis; those begun longest ago are forgotten first."""
REDIS_RETRY_S = 2.0
"""After a failure this process counts alone for so long before Redis is asked again."""
READS = frozenset({"GET", "HEAD", "OPTIONS"})
SIGN_IN_PATH = "/accounts/"
UNCOUNTED = ("/static/", "/stripe/events")
"""Files, and what a signature guards: Stripe sends as much as it has to tell."""

log = structlog.get_logger(__name__)


class RequestRates:
    """The windows of everybody. Safe to use from any thread."""

    def __init__(
        self, connection: redis.Redis, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._redis = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._local: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._away_until = 0.0

    def count(self, limit: str, subject: str, requests_max: int) -> None:
        """Counts a request; raises ApiError 429 when it is one too many of this window.

        `limit` is the name of it, for metrics and counters.
        """
        name = f"rates:{limit}:{subject}"
        counted, left_ms = self._count_in_redis(name) or self._count_here(name)
        if counted > requests_max:
            metrics.LIMIT_HITS.labels(limit).inc()
            raise errors.rate_limited(
                "requests",
                f"Too many requests in a minute; the limit is {requests_max}.",
                left_ms / 1000,
            )

    def _count_in_redis(self, name: str) -> tuple[int, int] | None:
        if self._clock() < self._away_until:
            return None
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.incr(name)
                pipeline.pexpire(name, WINDOW_MS, nx=True)
                pipeline.pttl(name)
                counted, _, left_ms = pipeline.execute()
        except (RedisError, OSError) as error:
            self._away_until = self._clock() + REDIS_RETRY_S
            metrics.REDIS_FALLBACKS.inc()
            log.warning("redis is away: request rates are per process now", error=str(error))
            return None
        return counted, max(left_ms, 0)

    def _count_here(self, name: str) -> tuple[int, int]:
        now = self._clock()
        with self._lock:
            ends_at, counted = self._local.get(name, (0.0, 0))
            if ends_at <= now:
                self._local.pop(name, None)
                ends_at, counted = now + WINDOW_MS / 1000, 0
            self._local[name] = (ends_at, counted + 1)
            while len(self._local) > SUBJECTS_MAX:
                self._local.popitem(last=False)
        return counted + 1, int((ends_at - now) * 1000)


@cache
def rates() -> RequestRates:
    """Those of this process."""
    timeout_s = settings.REDIS_TIMEOUT_S
    return RequestRates(
        redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
    )


def count_actor(actor_id: UUID, method: str) -> None:
    """A request of a person or a key; raises ApiError 429."""
    if method in READS:
        rates().count("actor_reads", actor_id.hex, settings.ACTOR_READS_PER_MINUTE_MAX)
    else:
        rates().count("actor_writes", actor_id.hex, settings.ACTOR_WRITES_PER_MINUTE_MAX)


def count_read_from(address: str) -> None:
    """A request of whoever is there, before anything is looked up for it; raises ApiError 429."""
    rates().count("address_reads", subscriber_of(address), settings.ADDRESS_READS_PER_MINUTE_MAX)


class RequestRateMiddleware(MiddlewareMixin):
    """Counts every request by its address, and what is sent to sign-in forms apart."""

    def process_request(self, request: HttpRequest) -> JsonResponse | None:
        """429 for one too many, before anything is looked up for it."""
        if request.path.startswith(UNCOUNTED):
            return None
        address, method = address_of(request), request.method or ""
        whose = subscriber_of(address)
        try:
            if method in READS:
                count_read_from(address)
            elif request.path.startswith(SIGN_IN_PATH):
                rates().count("sign_in_forms", whose, settings.SIGN_IN_FORMS_PER_MINUTE_MAX)
            else:
                rates().count("address_writes", whose, settings.ADDRESS_WRITES_PER_MINUTE_MAX)
        except errors.ApiError as error:
            return JsonResponse(error.body(), status=error.status, headers=error.headers())
        return None
