"""Writes that come at once go to the database in one list.

What comes while a write is under way waits for it and goes in the next, so that a busy pump writes
hundreds of items a second in a handful of transactions. Called by the pump's loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from django.db import InterfaceError, OperationalError
from psycopg.errors import QueryCanceled

from batch_jobs.ports import PipelinePort

Entry = TypeVar("Entry")
Result = TypeVar("Result")


class Lists(Generic[Entry, Result]):
    """`await lists.put(entry)` is `write([entry])`, perhaps in company: it gets the list's result.

    Where `write` raises because of an entry, each is written alone, so that one spoils no other;
    where the database failed everybody hears of it, since the write may have taken effect. One that
    took too long for the database is undone, and its entries are written alone, too.
    """

    def __init__(
        self, port: PipelinePort, write: Callable[[Sequence[Entry]], Result], entries_max: int
    ) -> None:
        self._port = port
        self._write = write
        self._entries_max = entries_max
        self._waiting: list[tuple[Entry, asyncio.Future[Result]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def put(self, entry: Entry) -> Result:
        """Writes an entry; raises what the write raises. Not undone when the caller goes away."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        while self._waiting:
            party = self._waiting[: self._entries_max]
            del self._waiting[: self._entries_max]
            try:
                result = await self._port.in_database(self._write, [entry for entry, _ in party])
            except (OperationalError, InterfaceError) as error:
                if isinstance(error.__cause__, QueryCanceled) and len(party) > 1:
                    # One entry may be what took so long; nothing of the list was written.
                    for entry, future in party:
                        await self._alone(entry, future)
                    continue
                for _, future in party:
                    _fail(future, error)
            except Exception:  # noqa: BLE001 - whatever one entry did, the others are written
                for entry, future in party:
                    await self._alone(entry, future)
            else:
                for _, future in party:
                    if not future.done():
                        future.set_result(result)

    async def _alone(self, entry: Entry, future: "asyncio.Future[Result]") -> None:
        try:
            result = await self._port.in_database(self._write, [entry])
        except Exception as error:  # noqa: BLE001 - handed to who asked
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(result)


def _fail(future: "asyncio.Future[Result]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
