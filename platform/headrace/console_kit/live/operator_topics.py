"""What the operator's live pages can follow: read every second from what engines report.

A part is read and rendered once for all who look. Its template is as a tenant topic's. Called by
the live socket; the operator's console says which topics there are.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import redis.asyncio
from django.conf import settings
from django.template.loader import render_to_string
from redis.exceptions import RedisError

from headrace.console_kit.live.topics import Context, Part, bounded
from headrace.gateway.announcing import EngineReport, engine_reports
from headrace.gateway.database import in_database


@dataclass(frozen=True, slots=True)
class OperatorTopic:
    """`read` runs on a database thread and gives the template's context.

    It is given the engines that report, or None while Redis is away and nobody knows.
    """

    name: str
    template: str
    read: Callable[[Sequence[EngineReport] | None], Context]


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """Such a topic as a feed's source."""

    name: str
    topic: OperatorTopic = field(compare=False)
    connection: redis.asyncio.Redis = field(compare=False)

    async def look(self) -> Part:
        """Reads and renders."""
        try:
            reports = await engine_reports(self.connection)
        except (RedisError, OSError):
            reports = None
        return await in_database(self._render, reports)

    async def due(self, looked_at: float) -> None:
        """A second later."""
        await asyncio.sleep(settings.LIVE_S)

    def is_last(self, part: Part) -> bool:
        """Never."""
        return part.is_last

    def _render(self, reports: Sequence[EngineReport] | None) -> Part:
        context = {"now": datetime.now(UTC), **self.topic.read(reports)}
        return Part(bounded(self.name, render_to_string(self.topic.template, context)))
