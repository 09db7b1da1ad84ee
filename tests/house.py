"""Waiting without sleeping. (The house itself joins with the processes.)"""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_S = 0.02


def wait_until(condition: Callable[[], Value], timeout_s: float = 30) -> Value:
    """The first true value of `condition`; AssertionError when none comes in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not so within {timeout_s} s: {condition}"
        time.sleep(POLL_S)
