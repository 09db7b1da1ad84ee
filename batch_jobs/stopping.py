"""Whether this process is told to end: what works in steps then stops at its next page.

Called by the worker's signal handler, and by whoever goes from page to page.
"""

import threading
import time

_told = threading.Event()


def stop() -> None:
    """Has every step under way stop soon, and no other begun. From any thread; for good."""
    _told.set()


def is_stopping() -> bool:
    """Takes no lock, so a signal may come in the midst of it."""
    return _told.is_set()


def goes_on_until(ends_at_s: float) -> bool:
    """Whether there is time for another step: until that moment of the monotonic clock."""
    return not is_stopping() and time.monotonic() < ends_at_s
