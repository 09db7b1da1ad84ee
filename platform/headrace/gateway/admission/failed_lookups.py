"""How often an address may show keys that do not exist, before its unknown keys are not looked up.

Spares the database, not the keys: 256 random bits are not guessed. Counts in this process alone and
forgets the oldest of too many addresses; a key that is remembered as valid is never held up. Called
by every door that takes keys.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

from headrace import errors
from headrace.telemetry import metrics

WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
IPV6_PREFIX_BITS = 64
"""What one subscriber has: more addresses than anybody could count."""


class FailedLookups:
    """Failures of each address in its current minute. Safe to use from any thread."""

    def __init__(self, failures_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures_max = failures_max
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises ApiError 429 for an address with too many failures in its minute."""
        with self._lock:
            started, failures = self._counts.get(_block(address), (0.0, 0))
        left_s = started + WINDOW_S - self._clock()
        if failures >= self._failures_max and left_s > 0:
            metrics.LIMIT_HITS.labels("failed_lookups").inc()
            raise errors.rate_limited(
                "requests", "Too many unknown API keys came from your address.", left_s
            )

    def note(self, address: str) -> None:
        """One more key of this address did not exist."""
        block, now = _block(address), self._clock()
        with self._lock:
            started, failures = self._counts.pop(block, (now, 0))
            if started + WINDOW_S <= now:
                started, failures = now, 0
            self._counts[block] = (started, failures + 1)
            while len(self._counts) > ADDRESSES_MAX:
                self._counts.popitem(last=False)


def _block(address: str) -> str:
    """Whom an address stands for; all connections without one stand together."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, IPV6_PREFIX_BITS), strict=False))
    return address
