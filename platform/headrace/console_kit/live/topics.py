"""What live pages can follow: a topic has a permission, a way to read it, and a template.

A part is read and rendered once for all who look, in the name of nobody in particular: with the
topic's permissions and no others. Its template has at its top elements with ids, and nothing else;
each takes the place of the page's element with that id. Called by the live socket; the consoles
say which topics there are.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.template.loader import render_to_string

from headrace.console_kit.live.changes import Changes
from headrace.feeds import Gone
from headrace.gateway.database import in_database
from headrace.telemetry import metrics
from tenants.contracts import Actor, ActorKind, Permission

Context = Mapping[str, Any]  # whatever a template takes

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """The organization whose pages they are."""

    organization_id: UUID
    slug: str
    currency: str
    time_zone: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What `Topic.read` is given: where, for what (as a job's id), and in whose name."""

    place: Place
    subject: str
    now: datetime
    actor: Actor


def never(_context: Context) -> bool:
    """Of what may always change again."""
    return False


@dataclass(frozen=True, slots=True)
class Topic:
    """Something of an organization that pages show live.

    `read` runs on a database thread and gives the template's context; None is for what is not
    there. What is `paced` is read every second, other topics when the organization moved.
    """

    name: str
    needs: frozenset[Permission]
    template: str
    read: Callable[[Asked], Context | None]
    takes_subject: bool = False
    paced: bool = False
    is_last: Callable[[Context], bool] = never


@dataclass(frozen=True, slots=True)
class Part:
    """What a page shows of a topic."""

    html: str
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic of one organization, as a feed's source."""

    name: str
    place: Place
    subject: str
    topic: Topic = field(compare=False)
    changes: Changes = field(compare=False)

    async def look(self) -> Part:
        """Reads and renders; raises Gone for what is not there."""
        return await in_database(self._render)

    async def due(self, looked_at: float) -> None:
        """When the organization moved since the last look, or after a while."""
        await asyncio.sleep(settings.LIVE_S)
        if self.topic.paced:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.LIVE_REFRESH_S):
                await self.changes.until_moved(self.place.organization_id, looked_at)

    def is_last(self, part: Part) -> bool:
        """As its topic says."""
        return part.is_last

    def _render(self) -> Part:
        topic, place = self.topic, self.place
        now = datetime.now(UTC)
        actor = Actor(ActorKind.SYSTEM, None, place.organization_id, topic.needs)
        context = topic.read(Asked(place, self.subject, now, actor))
        if context is None:
            raise Gone(f"{self.name}:{self.subject}")
        html = render_to_string(
            topic.template,
            {
                "slug": place.slug,
                "currency": place.currency,
                "zone": ZoneInfo(place.time_zone),
                "now": now,
                **context,
            },
        )
        return Part(bounded(self.name, html), topic.is_last(context))


def bounded(name: str, html: str) -> str:
    """The part, or nothing where it has more than LIVE_MESSAGE_BYTES_MAX."""
    if len(html.encode()) <= settings.LIVE_MESSAGE_BYTES_MAX:
        return html
    metrics.LIMIT_HITS.labels("live_message_bytes").inc()
    log.error("part of a live page is too large", topic=name)
    return ""
