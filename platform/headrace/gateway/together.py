"""Money calls of one tenant that come at once go to the database in one list.

A tenant's holds and settles lock one row, its account, until their commit is on disk: one by one
they could not be faster than the disk. Those that come while a call is under way wait for it and go
together in the next. Tenants never wait for each other here. Used by admission and settling.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError

from headrace.gateway.database import in_database

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TOGETHER_MAX = 64
"""Items of one call: all of them wait for its one transaction."""


class Together(Generic[Item, Answer]):
    """`await together(organization_id, item)` is `call([item])[0]`, perhaps in company.

    `call` answers each item in its order, in one transaction, and one item's refusal hinders no
    other. Where it raises because of an item, each is called alone, so that one spoils no other;
    where the database failed, everybody hears of it, since the call may have taken effect.
    """

    def __init__(self, call: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._call = call
        self._waiting: dict[UUID, list[tuple[Item, asyncio.Future[Answer]]]] = {}
        """By organization with a call under way."""
        self._travelling: set[asyncio.Task[None]] = set()

    async def __call__(self, organization_id: UUID, item: Item) -> Answer:
        """The answer to this item; raises what the call raises.

        Raises OperationalError for one that had to wait DATABASE_ANSWER_MAX_S and was not sent.
        """
        if organization_id in self._waiting:
            return await self._wait(organization_id, item)
        self._waiting[organization_id] = []
        try:
            (answer,) = await in_database(self._call, [item])
            return answer
        finally:
            self._depart(organization_id)

    async def _wait(self, organization_id: UUID, item: Item) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[organization_id].append((item, future))
        await asyncio.wait({future}, timeout=settings.DATABASE_ANSWER_MAX_S)
        line = self._waiting.get(organization_id, [])
        if not future.done() and (item, future) in line:
            # Others before it found the database slow for as long: it has not been sent, and
            # its sender must not wait for each of their turns.
            line.remove((item, future))
            raise OperationalError("the database is too slow for all that is asked")
        return await future

    def _depart(self, organization_id: UUID) -> None:
        """Starts the next call, if anybody waits."""
        waiting = self._waiting[organization_id]
        if not waiting:
            del self._waiting[organization_id]
            return
        self._waiting[organization_id] = waiting[TOGETHER_MAX:]
        task = asyncio.get_running_loop().create_task(self._travel(waiting[:TOGETHER_MAX]))
        self._travelling.add(task)
        task.add_done_callback(self._travelling.discard)
        task.add_done_callback(lambda _: self._depart(organization_id))

    async def _travel(self, party: list[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers = await in_database(self._call, [item for item, _ in party])
        except (OperationalError, InterfaceError) as error:
            for _, future in party:
                _fail(future, error)
        except Exception:  # noqa: BLE001 - whatever one item did to the call, the others go on
            for item, future in party:
                await self._alone(item, future)
        else:
            for answer, (_, future) in zip(answers, party, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _alone(self, item: Item, future: "asyncio.Future[Answer]") -> None:
        try:
            (answer,) = await in_database(self._call, [item])
        except Exception as error:  # noqa: BLE001 - handed to who asked
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(answer)


def _fail(future: "asyncio.Future[Answer]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
