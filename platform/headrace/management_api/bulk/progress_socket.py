"""`WS /api/v1/summaries/{id}/progress`: a job's JSON when it has changed, once a second at most.

The last message is the job as it ended; then the socket closes with 1000. Whose job it is not is
told 4404, as for one that never was. What a client sends is not read. Auth is that of `/v1/stream`.
"""

import asyncio
import contextlib

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from batch_jobs.contracts import SummaryInfo
from headrace.feeds import Feeds, Follower, Gone
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.socket_admission import (
    CLOSE_SLOW,
    CLOSE_UNAUTHORIZED,
    CLOSE_UNAVAILABLE,
    CLOSE_WAIT_S,
    REASONS,
    admit_socket,
    dismiss_socket,
)
from headrace.management_api.bulk.progress_feed import ENDED, SummarySource
from headrace.management_api.bulk.shapes import parse_id
from headrace.management_api.bulk.summary_shapes import PREFIX, shown
from tenants.contracts import KeyIdentity, KeyScope

CLOSE_DONE = 1000
CLOSE_NOT_FOUND = 4404


class ProgressConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One socket that follows one job."""

    runtime: GatewayRuntime
    feeds: Feeds

    async def connect(self) -> None:
        """Authenticates before it serves; refuses with the close code that says why."""
        self._following: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.runtime, self.feeds = self.scope["runtime"], self.scope["feeds"]
        refused, identity = await admit_socket(self, KeyScope.BATCHES, self._revoked)
        if refused is not None:
            await self._close(refused)
            return
        assert identity is not None
        self._following = asyncio.ensure_future(self._follow(identity))

    async def disconnect(self, code: int) -> None:
        """Follows no more."""
        dismiss_socket(self)
        if self._following is not None:
            self._following.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is expected of a client."""

    async def _follow(self, identity: KeyIdentity) -> None:
        asked = self.scope["url_route"]["kwargs"]["summary_id"]
        try:
            job_id = parse_id(PREFIX, asked)
        except ValueError:
            await self._close(CLOSE_NOT_FOUND)
            return
        source = SummarySource(
            identity.organization_id, identity.project_id, job_id, identity.key_id
        )
        with self.feeds.following(source) as follower:
            code = await self._tell(follower, identity.currency)
        await self._close(code)

    async def _tell(self, follower: Follower[SummaryInfo], currency: str) -> int:
        """Tells the client how the job goes; returns with what to close."""
        while not self.runtime.draining:
            try:
                async with asyncio.timeout(settings.PROGRESS_S):
                    (info,) = (await follower.news()).values()
            except TimeoutError:
                continue
            except Gone:
                return CLOSE_NOT_FOUND
            if not await self._sent(info, currency):
                return CLOSE_SLOW
            if info.job.state in ENDED:
                return CLOSE_DONE
        return CLOSE_UNAVAILABLE

    async def _sent(self, info: SummaryInfo, currency: str) -> bool:
        """False for a client that is gone, or takes nothing for STREAM_WRITE_TIMEOUT_S."""
        text = msgspec.json.encode(shown(info, currency)).decode()
        try:
            async with asyncio.timeout(settings.STREAM_WRITE_TIMEOUT_S):
                await self.send(text_data=text)
        except (TimeoutError, OSError, RuntimeError):
            return False
        return True

    async def _close(self, code: int) -> None:
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self.close(code, REASONS.get(code))

    def _revoked(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self._closing = asyncio.ensure_future(self._close(CLOSE_UNAUTHORIZED))
