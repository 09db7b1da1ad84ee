"""Hands finishes that no live stream waits for to whoever settles them.

Such finishes come from earlier connections or from earlier lives of the process. A settler that
fails or hangs costs nothing but time: the engine repeats what nobody acknowledged. Used by the
client only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from inference.contracts import Finish

logger = logging.getLogger(__name__)

ORPHANS_WAITING_MAX = 4096
"""Beyond it new ones are left to the engine, which repeats them."""
ORPHANS_PER_CALL_MAX = 256
SETTLE_S = 60.0


class Orphans:
    """A bounded queue in front of `settle`, one call at a time, each request once."""

    def __init__(self, settle: Callable[[Sequence[Finish]], Awaitable[None]]) -> None:
        self._settle = settle
        self._waiting: dict[str, Finish] = {}
        self._in_call: frozenset[str] = frozenset()
        self._wake = asyncio.Event()

    def add(self, finish: Finish) -> None:
        """Queues a finish unless it is queued or being settled already."""
        if finish.request_id in self._in_call or len(self._waiting) >= ORPHANS_WAITING_MAX:
            return
        self._waiting[finish.request_id] = finish
        self._wake.set()

    async def run(self) -> None:
        """Settles what comes, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._settle_some()

    async def _settle_some(self) -> None:
        request_ids = list(self._waiting)[:ORPHANS_PER_CALL_MAX]
        finishes = [self._waiting.pop(request_id) for request_id in request_ids]
        self._in_call = frozenset(request_ids)
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._settle(finishes)
        except Exception:
            logger.exception("event=orphans_not_settled count=%d", len(finishes))
        finally:
            self._in_call = frozenset()
