"""When requests have waited or run for too long: a heap of times, looked at once per step.

Pure; knows ids and times only. The engine asks for what is due and decides what that means.
"""

import heapq
from collections.abc import Collection

DEAD_MAX = 1024
"""Times of requests that have ended meanwhile are dropped once there are so many of them."""


class Deadlines:
    """Times in the engine's seconds, by request id. Ids that have ended meanwhile come up all the
    same and are the caller's to ignore."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def add(self, request_id: str, at_s: float, live: Collection[str]) -> None:
        """Wakes for this request at `at_s`; may be called twice for one of the `live` ones."""
        if len(self._heap) > DEAD_MAX + 2 * len(live):
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (at_s, request_id))

    def due(self, now_s: float) -> list[str]:
        """Requests whose time has come, each time once."""
        ids = []
        while self._heap and self._heap[0][0] <= now_s:
            ids.append(heapq.heappop(self._heap)[1])
        return ids
