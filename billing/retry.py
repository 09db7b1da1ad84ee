"""Calling one money function of the database, again when it was a deadlock's victim.

A call is one statement and one transaction, so running it again is safe: a victim left nothing
behind. Must never run inside somebody else's transaction. Called by whatever moves money or sets
quotas.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django.db import OperationalError, connections

TRIES_MAX = 8
BACKOFF_MS = 10
"""Upper bound of the first pause; it doubles with each try."""
Result = TypeVar("Result")
VICTIMS = frozenset({"40001", "40P01"})
VICTIMS_AND_LATE = VICTIMS | {"55P03"}
"""Also of the lock timeout: for what nobody waits for, and a busy tenant's traffic may hold up."""


def call(sql: str, parameters: Sequence[Any], using: str) -> list[tuple[Any, ...]]:
    """All rows of one statement, in a transaction of its own.

    Raises OperationalError after TRIES_MAX tries, or at once for other causes.
    """
    connection = connections[using]
    assert not connection.in_atomic_block, "money moves in a transaction of its own"

    def once() -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    return again(once)


def again(work: Callable[[], Result], sqlstates: frozenset[str] = VICTIMS) -> Result:
    """What `work`, one whole transaction, returns, tried again after errors of `sqlstates`.

    Raises as `call` does.
    """
    for attempt in range(TRIES_MAX):
        try:
            return work()
        except OperationalError as error:
            sqlstate = getattr(error.__cause__, "sqlstate", None)
            if attempt + 1 == TRIES_MAX or sqlstate not in sqlstates:
                raise
            # Jitter, so that the victims of one deadlock do not meet again.
            pause = timedelta(milliseconds=secrets.randbelow(BACKOFF_MS << attempt))
            time.sleep(pause.total_seconds())
    raise AssertionError("unreachable")
