"""How many keys that do not exist an address may show, before its new keys are not looked up.

Spares the database, not the keys: 256 random bits are not guessed. Counts different keys, so that a
program that repeats a dead one troubles nobody behind its address, and never holds up a key that
has worked here. In this process alone, with bounded memory. Called by every door that takes keys.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from headrace import errors
from headrace.client_address import subscriber_of
from headrace.telemetry import metrics

WINDOW_S = 60.0
ADDRESSES_MAX = 4_096
PROVEN_MAX = 10_000
"""Keys remembered to have worked; the longest unused are forgotten first."""


class FailedLookups:
    """Unknown keys of each address in its current minute. Safe to use from any thread.

    A key is named by a digest of it.
    """

    def __init__(self, failures_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures_max = failures_max
        self._clock = clock
        self._lock = threading.Lock()
        self._unknown: OrderedDict[str, tuple[float, set[bytes]]] = OrderedDict()
        self._proven: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, digest: bytes) -> None:
        """Raises ApiError 429 for a new key of an address that showed too many unknown ones."""
        with self._lock:
            started, unknown = self._unknown.get(subscriber_of(address), (0.0, frozenset[bytes]()))
            left_s = started + WINDOW_S - self._clock()
            full = len(unknown) >= self._failures_max and left_s > 0
            if not full or digest in self._proven or digest in unknown:
                return
        metrics.LIMIT_HITS.labels("failed_lookups").inc()
        raise errors.rate_limited(
            "requests", "Too many unknown API keys came from your address.", left_s
        )

    def failed(self, address: str, digest: bytes) -> None:
        """This key of this address does not exist, or no more."""
        block, now = subscriber_of(address), self._clock()
        with self._lock:
            self._proven.pop(digest, None)
            started, unknown = self._unknown.pop(block, (now, set()))
            if started + WINDOW_S <= now:
                started, unknown = now, set()
            if len(unknown) < self._failures_max:
                unknown.add(digest)
            self._unknown[block] = (started, unknown)
            while len(self._unknown) > ADDRESSES_MAX:
                self._unknown.popitem(last=False)

    def worked(self, digest: bytes) -> None:
        """This key exists."""
        with self._lock:
            self._proven[digest] = None
            self._proven.move_to_end(digest)
            while len(self._proven) > PROVEN_MAX:
                self._proven.popitem(last=False)
