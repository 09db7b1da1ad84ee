"""How jobs go, for any number of sockets that follow them: one look a second for each job.

A process asks the database once for all who follow a job here, however many they are, so that what
it costs is bounded by jobs and not by viewers; it needs nobody to publish, and shows what is
committed. Called by the sockets.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

import batch_jobs.facade
from batch_jobs.contracts import JobNotFound, Owner, SummaryInfo
from headrace.gateway.database import in_database

log = structlog.get_logger(__name__)
ENDED = ("completed", "failed", "expired", "cancelled")


class ProgressFeeds:
    """The jobs that sockets of this process follow. Belongs to one event loop."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[UUID, UUID, UUID], _Feed] = {}

    @asynccontextmanager
    async def following(self, owner: Owner, job_id: UUID) -> AsyncIterator["Viewer"]:
        """A place among those who follow a job."""
        key = (owner.organization_id, owner.project_id, job_id)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = _Feed(owner, job_id)
        feed.viewers += 1
        try:
            yield Viewer(feed)
        finally:
            feed.viewers -= 1
            if feed.viewers == 0:
                feed.stop()
                del self._feeds[key]


class Viewer:
    """One who follows a job; whoever is slow misses what came between."""

    def __init__(self, feed: "_Feed") -> None:
        self._feed = feed
        self._seen = 0

    async def next(self) -> SummaryInfo:
        """The job when it is other than at the last call; raises JobNotFound. May be cancelled."""
        feed = self._feed
        while feed.version == self._seen:
            if feed.missing:
                raise JobNotFound(str(feed.job_id))
            await feed.changed.wait()
        self._seen = feed.version
        assert feed.latest is not None
        return feed.latest


class _Feed:
    def __init__(self, owner: Owner, job_id: UUID) -> None:
        self.job_id = job_id
        self.viewers = 0
        self.version = 0
        self.latest: SummaryInfo | None = None
        self.missing = False
        self.changed = asyncio.Event()
        self._owner = owner
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while not self.missing and (self.latest is None or self.latest.job.state not in ENDED):
            await self._look()
            await asyncio.sleep(settings.PROGRESS_S)

    async def _look(self) -> None:
        try:
            info = await in_database(batch_jobs.facade.read_summary, self._owner, self.job_id)
        except JobNotFound:
            self.missing = True
        except (DatabaseError, InterfaceError) as error:
            log.warning("progress not read", error=str(error).strip())
            return
        else:
            if info == self.latest:
                return
            self.latest = info
            self.version += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
