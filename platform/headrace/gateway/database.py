"""The one bridge from the event loop to the database: a bounded thread pool.

One synchronous function per transaction; each thread keeps a connection of Django's pool. No ORM
call is made on the event loop, and none while a stream is being read. (Channels would run all of a
process's database calls on a single thread: channels#2132.)
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg_pool import PoolTimeout

Params = ParamSpec("Params")
Result = TypeVar("Result")

CHECKED_AFTER_S = 1.0
"""A thread keeps its connection. Giving it back after each call, and having the pool check it at
the next, took 0.5 ms of processor time per request."""

_thread = threading.local()
_pool = ThreadPoolExecutor(settings.DATABASE_THREADS_MAX, thread_name_prefix="database")


class DatabaseSilent(OperationalError):
    """No answer in time. The call is still under way on its thread: `call` tells when it ended."""

    def __init__(self, call: "Future[Any]") -> None:
        super().__init__("the database does not answer")
        self.call = call


async def in_database(
    call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
) -> Result:
    """Runs `call` on a database thread; raises what it raises.

    Raises OperationalError when no thread came free in DATABASE_ANSWER_MAX_S, and DatabaseSilent
    when one did and has no answer yet: the call may still take effect.
    """

    def run() -> Result:
        _check_if_idle()
        try:
            return call(*args, **kwargs)
        except OperationalError as error:
            if isinstance(error.__cause__, PoolTimeout):
                # Full of connections from before an outage: start over instead of trying each.
                database = connections[DEFAULT_DB_ALIAS]
                assert isinstance(database, DatabaseWrapper)
                database.pool.drain()
            raise
        finally:
            _keep_if_healthy()

    work = _pool.submit(run)
    try:
        async with asyncio.timeout(settings.DATABASE_ANSWER_MAX_S):
            return await asyncio.shield(asyncio.wrap_future(work))
    except TimeoutError as error:
        if work.cancel():
            raise OperationalError("the database is too slow for all that is asked") from error
        raise DatabaseSilent(work) from error


def _check_if_idle() -> None:
    """A connection that rested may be older than the server's last restart."""
    if time.monotonic() - getattr(_thread, "used_at", 0.0) > CHECKED_AFTER_S:
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and not connection.is_usable():
                connection.close()


def _keep_if_healthy() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close()
    _thread.used_at = time.monotonic()


async def ended(silent: DatabaseSilent) -> None:
    """Waits until the call that was given up has ended, in whatever way."""
    with contextlib.suppress(Exception):  # whatever it raised was nobody's to hear any more
        await asyncio.wrap_future(silent.call)
