"""The one bridge from the event loop to the database: a bounded thread pool.

One synchronous function per transaction; its connection goes back to Django's pool when it
returns. No ORM call is made on the event loop, and none while a stream is being read. (Channels
would run all of a process's database calls on a single thread: channels#2132.)
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, close_old_connections, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg_pool import PoolTimeout

Params = ParamSpec("Params")
Result = TypeVar("Result")

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
            close_old_connections()

    work = _pool.submit(run)
    try:
        async with asyncio.timeout(settings.DATABASE_ANSWER_MAX_S):
            return await asyncio.shield(asyncio.wrap_future(work))
    except TimeoutError as error:
        if work.cancel():
            raise OperationalError("the database is too slow for all that is asked") from error
        raise DatabaseSilent(work) from error


async def ended(silent: DatabaseSilent) -> None:
    """Waits until the call that was given up has ended, in whatever way."""
    with contextlib.suppress(Exception):  # whatever it raised was nobody's to hear any more
        await asyncio.wrap_future(silent.call)
