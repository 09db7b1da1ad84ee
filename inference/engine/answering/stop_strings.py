"""Cuts one request's text at the first stop string, without ever emitting a part of one.

Held back is only a suffix that may still become a stop string, never a fixed number of characters.
The result does not depend on how the text is split into pieces: the stop string that is complete
first wins, and of several complete at the same character the longest. Used by the engine.
"""

from collections.abc import Sequence


class StopStrings:
    """Matches the stop strings of one request over its growing text."""

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string was completed.

        After True nothing may be pushed any more and nothing is held.
        """
        if not self._stops:
            return text, False
        pending = self._held + text
        cut = self._first_stop(pending)
        if cut is not None:
            self._held = ""
            return pending[:cut], True
        held_chars = self._partial_stop_chars(pending)
        self._held = pending[len(pending) - held_chars :]
        return pending[: len(pending) - held_chars], False

    def flush(self) -> str:
        """What was held back, once it is certain that no stop string will be completed."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> int | None:
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _partial_stop_chars(self, text: str) -> int:
        for count in range(min(len(text), max(map(len, self._stops)) - 1), 0, -1):
            suffix = text[len(text) - count :]
            if any(stop.startswith(suffix) for stop in self._stops):
                return count
        return 0
