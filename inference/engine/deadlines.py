"""When requests have waited or run for too long: a heap of times, looked at once per step.

Pure; knows ids and times only. The engine asks for what is due and decides what that means.
"""

import heapq


class Deadlines:
    """Times in the engine's seconds, by request id. Ids that have ended meanwhile come up all the
    same and are the caller's to ignore."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def add(self, request_id: str, at_s: float) -> None:
        """Wakes for this request at `at_s`; may be called more than once."""
        heapq.heappush(self._heap, (at_s, request_id))

    def due(self, now_s: float) -> list[str]:
        """Requests whose time has come, each time once."""
        ids = []
        while self._heap and self._heap[0][0] <= now_s:
            ids.append(heapq.heappop(self._heap)[1])
        return ids
