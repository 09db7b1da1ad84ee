"""Whose numbers moved lately, as all processes announce it: so that nobody asks the database.

Hears Redis while anybody looks at a live page of this process. After it could not hear, everything
counts as moved. Called by the live pages.
"""

import asyncio
from collections import OrderedDict
from uuid import UUID

import redis.asyncio
import structlog
from django.conf import settings
from redis.exceptions import RedisError

from headrace.gateway.announcing import MOVED_CHANNEL, moved_in

HEARD_WAIT_S = 5.0
RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Changes:
    """When each organization last moved. Belongs to one event loop."""

    def __init__(self) -> None:
        self._moved_at: OrderedDict[UUID, float] = OrderedDict()
        self._all_moved_at = 0.0
        self._news = asyncio.Event()

    async def until_moved(self, organization_id: UUID, since: float) -> None:
        """Returns when it moved at `since`, in the loop's time, or later."""
        while max(self._moved_at.get(organization_id, 0.0), self._all_moved_at) < since:
            await self._news.wait()

    async def listen(self, connection: redis.asyncio.Redis) -> None:
        """Hears until it is cancelled."""
        while True:
            try:
                await self._hear(connection)
            except (RedisError, OSError) as error:
                log.warning("live pages hear nothing: redis is away", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _hear(self, connection: redis.asyncio.Redis) -> None:
        async with connection.pubsub(ignore_subscribe_messages=True) as heard:
            await heard.subscribe(MOVED_CHANNEL)
            self._all_moved_at = asyncio.get_running_loop().time()
            self._tell()
            while True:
                message = await heard.get_message(timeout=HEARD_WAIT_S)
                if message is not None:
                    self._note(moved_in(message["data"]))

    def _note(self, moved: list[UUID]) -> None:
        now = asyncio.get_running_loop().time()
        for organization_id in moved:
            self._moved_at[organization_id] = now
            self._moved_at.move_to_end(organization_id)
        while len(self._moved_at) > settings.LIVE_MOVED_MAX:
            # Whoever looks at that one sees it at the next refresh.
            self._moved_at.popitem(last=False)
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
