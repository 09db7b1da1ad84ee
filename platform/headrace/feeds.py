"""What sockets follow, for any number of them: each thing is looked at once for all of a process.

So what it costs is bounded by the things that are followed and not by who follows them; a look
shows what is committed. Whoever is slow misses what came between. Called by the sockets.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import structlog
from django.db import DatabaseError, InterfaceError

Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)

log = structlog.get_logger(__name__)


class Gone(Exception):
    """What was followed is not there, or no longer."""


class Source(Protocol[Value_co]):
    """Something to look at. Equal ones are one feed."""

    def __hash__(self) -> int: ...

    async def look(self) -> Value_co:
        """As it is now; raises Gone, and DatabaseError for another try at the next turn."""

    async def due(self, looked_at: float) -> None:
        """Returns when another look is worth it; `looked_at` is when the last one began."""

    def is_last(self, value: Any) -> bool:  # a Value, which a protocol may not take
        """Whether it stays like this for good."""


class Follower(Generic[Value]):
    """One who follows feeds."""

    def __init__(self, feeds: "Mapping[Source[Value], _Feed[Value]]") -> None:
        self._feeds = feeds
        self._seen = dict.fromkeys(feeds, 0)
        self._news = asyncio.Event()

    async def news(self) -> dict[Source[Value], Value]:
        """What is other than at the last call; raises Gone. May be cancelled."""
        while not (found := self._unseen()):
            self._news.clear()
            await self._news.wait()
        return found

    def wake(self) -> None:
        """There is something to see."""
        self._news.set()

    def _unseen(self) -> dict[Source[Value], Value]:
        found: dict[Source[Value], Value] = {}
        for source, feed in self._feeds.items():
            if feed.gone is not None:
                raise feed.gone
            if feed.version != self._seen[source]:
                self._seen[source] = feed.version
                assert feed.latest is not None
                found[source] = feed.latest
        return found


class Feeds:
    """All that is followed in this process. Belongs to one event loop."""

    def __init__(self) -> None:
        self._feeds: dict[Source[Any], _Feed[Any]] = {}  # of any kind, side by side

    def __len__(self) -> int:
        """How many things are looked at."""
        return len(self._feeds)

    @contextmanager
    def following(self, *sources: Source[Value]) -> Iterator[Follower[Value]]:
        """A place among those who follow these."""
        follower = Follower({source: self._feed(source) for source in sources})
        for source in sources:
            self._feeds[source].followers.add(follower)
        try:
            yield follower
        finally:
            for source in dict.fromkeys(sources):
                feed = self._feeds[source]
                feed.followers.discard(follower)
                if not feed.followers:
                    feed.stop()
                    del self._feeds[source]

    def _feed(self, source: Source[Value]) -> "_Feed[Value]":
        if source not in self._feeds:
            self._feeds[source] = _Feed(source)
        return self._feeds[source]


class _Feed(Generic[Value]):
    def __init__(self, source: Source[Value]) -> None:
        self.followers: set[Follower[Value]] = set()
        self.version = 0
        self.latest: Value | None = None
        self.gone: Gone | None = None
        self._source = source
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.gone is None and not (
            self.latest is not None and self._source.is_last(self.latest)
        ):
            looked_at = loop.time()
            await self._look()
            await self._source.due(looked_at)

    async def _look(self) -> None:
        try:
            value = await self._source.look()
        except Gone as gone:
            self.gone = gone
        except (DatabaseError, InterfaceError) as error:
            log.warning("followed and not read", error=str(error).strip())
            return
        except Exception:  # a process edge: those who follow must not wait for ever
            log.exception("followed and failed")
            self.gone = Gone("it cannot be read")
        else:
            if value == self.latest:
                return
            self.latest = value
            self.version += 1
        for follower in self.followers:
            follower.wake()
