"""Where minute limits stand now, for pages: what is used of the last sixty seconds, and at once.

Counts nothing and refuses nothing. Knows only what Redis does: None while that is away. Called by
the console, on threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from uuid import UUID

import redis
from django.conf import settings
from redis.exceptions import RedisError

from headrace.gateway.admission.minute_limits import LimitScope, Standing
from headrace.gateway.admission.rate_limits import SCRIPT, counters_of

SEEN_LENGTH = 5
"""Numbers that the script answers of each scope."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one scope has used of its minute, and how many of its requests are under way."""

    standing: Standing
    concurrency: int

    def used(self, metric: str) -> int:
        """Of any of METRICS."""
        return self.concurrency if metric == "concurrency" else self.standing.used(metric)


def peek(organization_id: UUID, scopes: Sequence[LimitScope]) -> list[Seen] | None:
    """What each of these scopes has used; None while Redis is away."""
    if not scopes:
        return []
    script = _connection().register_script(SCRIPT)
    try:
        answer = script(keys=counters_of(organization_id, scopes), args=["peek", ""])
    except (RedisError, OSError):
        return None
    numbers = [int(one) for one in answer]
    return [
        Seen(Standing(*numbers[start : start + 4]), numbers[start + 4])
        for start in range(0, len(numbers), SEEN_LENGTH)
    ]


@cache
def _connection() -> redis.Redis:
    timeout_s = settings.REDIS_TIMEOUT_S
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
    )
