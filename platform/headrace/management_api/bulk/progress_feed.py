"""A job as sockets follow it: looked at once a second, until it has ended.

It needs nobody to publish, and shows what is committed. Called by the sockets.
"""

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings

import batch_jobs.facade
from batch_jobs.contracts import JobNotFound, Owner, SummaryInfo
from headrace.feeds import Gone
from headrace.gateway.database import in_database

ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True, slots=True)
class SummarySource:
    """A summarisation job of a project, whichever of its keys asks."""

    organization_id: UUID
    project_id: UUID
    job_id: UUID
    key_id: UUID = field(compare=False)

    async def look(self) -> SummaryInfo:
        """Raises Gone for a job that is not there."""
        owner = Owner(self.organization_id, self.project_id, self.key_id)
        try:
            return await in_database(batch_jobs.facade.read_summary, owner, self.job_id)
        except JobNotFound as error:
            raise Gone(str(self.job_id)) from error

    async def due(self, looked_at: float) -> None:
        """A second later."""
        await asyncio.sleep(settings.PROGRESS_S)

    def is_last(self, info: SummaryInfo) -> bool:
        """Nothing happens to a job that has ended."""
        return info.job.state in ENDED
