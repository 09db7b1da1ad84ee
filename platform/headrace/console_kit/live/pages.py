"""All live pages of one process: how many look, and what at.

While anybody looks, it hears what moved. Belongs to one event loop. Held by the ASGI application,
used by the socket.
"""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import redis.asyncio
from django.conf import settings

from headrace.console_kit.live.changes import Changes
from headrace.console_kit.live.operator_topics import OperatorSource, OperatorTopic
from headrace.console_kit.live.topics import Part, Place, Topic, TopicSource
from headrace.feeds import Feeds, Source
from headrace.telemetry import metrics
from tenants.contracts import Permission


class TopicUnknown(Exception):
    """No such topic, or too many of them."""


class TooManyViewers(Exception):
    """LIVE_VIEWERS_MAX or LIVE_VIEWERS_PER_PERSON_MAX is met."""


class LivePages:
    """Viewers, topics, and the one task that serves all viewers."""

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
        self._viewers: dict[object, UUID] = {}
        self._hearing: asyncio.Task[None] | None = None

    def asked(self, query: str) -> tuple[tuple[str, str], ...]:
        """`usage,job:<id>` as names and subjects, each once; raises TopicUnknown."""
        named = (part.partition(":")[::2] for part in query.split(","))
        parts = tuple(dict.fromkeys((name, _plain(subject)) for name, subject in named))
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
        return frozenset[Permission]().union(*(self._topics[name].needs for name, _ in asked))

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

    def join(self, whose: object, user_id: UUID, connection: redis.asyncio.Redis) -> None:
        """Makes room for a page of a person, until it must `leave`; raises TooManyViewers."""
        same = sum(other == user_id for other in self._viewers.values())
        if (
            len(self._viewers) >= settings.LIVE_VIEWERS_MAX
            or same >= settings.LIVE_VIEWERS_PER_PERSON_MAX
        ):
            metrics.LIMIT_HITS.labels("live_viewers").inc()
            raise TooManyViewers
        self._viewers[whose] = user_id
        if self._hearing is None:
            hearing = self._changes.listen(connection)
            self._hearing = asyncio.get_running_loop().create_task(hearing)

    def leave(self, whose: object) -> None:
        """Gives the room back, if there is any."""
        self._viewers.pop(whose, None)
        if not self._viewers and self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None


def _plain(subject: str) -> str:
    """An id in the one spelling that feeds are told apart by: each of them costs its reads."""
    try:
        return str(UUID(subject))
    except ValueError:
        return subject
