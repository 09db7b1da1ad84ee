"""The one bridge from the event loop to the database: a bounded thread pool.

One synchronous function per transaction; its connection goes back to Django's pool when it
returns. No ORM call is made on the event loop, and none while a stream is being read. (Channels
would run all of a process's database calls on a single thread: channels#2132.)
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import OperationalError, close_old_connections

Params = ParamSpec("Params")
Result = TypeVar("Result")

_pool = ThreadPoolExecutor(settings.DATABASE_THREADS_MAX, thread_name_prefix="database")


async def in_database(
    call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
) -> Result:
    """Runs `call` on a database thread; raises what it raises.

    Raises OperationalError when it has not answered in DATABASE_ANSWER_MAX_S. It may still take
    effect later, so whatever is called here must bear being repeated.
    """

    def run() -> Result:
        try:
            return call(*args, **kwargs)
        finally:
            close_old_connections()

    try:
        async with asyncio.timeout(settings.DATABASE_ANSWER_MAX_S):
            return await asyncio.get_running_loop().run_in_executor(_pool, run)
    except TimeoutError as error:
        raise OperationalError("the database does not answer") from error
