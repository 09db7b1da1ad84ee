"""All live pages of one process: who looks, at what, and for how long they may.

While anybody looks, it hears what moved and asks every LIVE_CHECK_S whether those who look still
may, in one go for all. Belongs to one event loop. Held by the ASGI application, used by the socket.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import redis.asyncio
import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from headrace.console_kit.live.changes import Changes
from headrace.console_kit.live.operator_topics import OperatorSource, OperatorTopic
from headrace.console_kit.live.topics import Part, Place, Topic, TopicSource
from headrace.console_kit.live.viewing import Viewer, still_looking
from headrace.feeds import Feeds, Source
from headrace.gateway.database import in_database
from headrace.telemetry import metrics
from tenants.contracts import Permission

log = structlog.get_logger(__name__)


class TopicUnknown(Exception):
    """No such topic, or too many of them."""


class TooManyViewers(Exception):
    """LIVE_VIEWERS_MAX or LIVE_VIEWERS_PER_PERSON_MAX is met."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one who looks."""

    viewer: Viewer
    signed_out: Callable[[], None]
    not_allowed: Callable[[], None]


class LivePages:
    """Seats, topics, and the one task that serves all seats."""

    def __init__(
        self,
        feeds: Feeds,
        topics: Mapping[str, Topic],
        operator_topics: Mapping[str, OperatorTopic],
    ) -> None:
        self.feeds = feeds
        self._topics = topics
        self._operator_topics = operator_topics
        self._changes = Changes()
        self._seats: dict[object, Seat] = {}
        self._serving: asyncio.Task[None] | None = None

    def asked(self, query: str) -> tuple[tuple[str, str], ...]:
        """`usage,job:<id>` as names and subjects, each once; raises TopicUnknown."""
        parts = tuple(dict.fromkeys(part.partition(":")[::2] for part in query.split(",")))
        if len(parts) > settings.LIVE_TOPICS_MAX:
            metrics.LIMIT_HITS.labels("live_topics").inc()
            raise TopicUnknown(f"more than {settings.LIVE_TOPICS_MAX} topics")
        return parts

    def needs(self, asked: tuple[tuple[str, str], ...]) -> frozenset[Permission]:
        """What somebody must be allowed who follows these; raises TopicUnknown."""
        for name, subject in asked:
            topic = self._topics.get(name)
            if topic is None or topic.takes_subject != bool(subject):
                raise TopicUnknown(name)
        return frozenset(self._topics[name].needs for name, _ in asked)

    def sources(self, asked: tuple[tuple[str, str], ...], place: Place) -> list[Source[Part]]:
        """What feeds them."""
        return [
            TopicSource(name, place, subject, self._topics[name], self._changes)
            for name, subject in asked
        ]

    def operator_sources(
        self, asked: tuple[tuple[str, str], ...], connection: redis.asyncio.Redis
    ) -> list[Source[Part]]:
        """The same for the operator's topics; raises TopicUnknown."""
        for name, subject in asked:
            if name not in self._operator_topics or subject:
                raise TopicUnknown(name)
        return [OperatorSource(name, self._operator_topics[name], connection) for name, _ in asked]

    def sit(self, whose: object, seat: Seat, connection: redis.asyncio.Redis) -> None:
        """Gives `whose` a seat until they `leave`; raises TooManyViewers."""
        same = sum(other.viewer.user_id == seat.viewer.user_id for other in self._seats.values())
        if (
            len(self._seats) >= settings.LIVE_VIEWERS_MAX
            or same >= settings.LIVE_VIEWERS_PER_PERSON_MAX
        ):
            metrics.LIMIT_HITS.labels("live_viewers").inc()
            raise TooManyViewers
        self._seats[whose] = seat
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve(connection))

    def leave(self, whose: object) -> None:
        """Gives the seat back, if there is one."""
        self._seats.pop(whose, None)
        if not self._seats and self._serving is not None:
            self._serving.cancel()
            self._serving = None

    async def _serve(self, connection: redis.asyncio.Redis) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._changes.listen(connection))
            group.create_task(self._check_all())

    async def _check_all(self) -> None:
        while True:
            await asyncio.sleep(settings.LIVE_CHECK_S)
            # A database that is away tells nobody anything, and so nothing live either.
            with contextlib.suppress(DatabaseError, InterfaceError):
                await self._check()

    async def _check(self) -> None:
        seats = list(self._seats.values())
        gone, barred = await in_database(still_looking, {seat.viewer for seat in seats})
        for seat in seats:
            if seat.viewer in gone:
                seat.signed_out()
            elif seat.viewer in barred:
                seat.not_allowed()
