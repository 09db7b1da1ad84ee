"""`WS /console/<slug>/live` and `/operator/live`: parts of a page as HTML, when they have changed.

`?topics=usage,job:<id>` says which. At most one message in LIVE_S goes to a viewer, with the latest
of each part and the time. Auth is by the session, as the pages'; what a client sends is not read.
A close code says why it ends; browsers come back after 1012 and 1013.
"""

import asyncio
import contextlib
from collections.abc import Collection
from datetime import UTC, datetime
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.utils.html import format_html

from headrace import errors
from headrace.console_kit.live.pages import LivePages, TooManyViewers, TopicUnknown
from headrace.console_kit.live.topics import Part
from headrace.console_kit.live.viewing import viewer_of
from headrace.console_kit.operator_host import is_operators
from headrace.feeds import Follower, Gone, Source
from headrace.gateway.admission.auth import address_of
from headrace.gateway.database import in_database
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import header
from headrace.gateway.transport.socket_admission import CLOSE_WAIT_S, check_origin
from headrace.request_rates import count_read_from
from headrace.sign_in.sittings import NotSignedIn, NotStaff, session_key_in
from headrace.telemetry import metrics
from tenants.contracts import OrganizationNotFound, PermissionDenied, SecondFactorMissing

CLOSE_RESTARTING = 1012
CLOSE_BUSY = 1013
CLOSE_UNKNOWN_TOPIC = 4400
CLOSE_SIGNED_OUT = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_NOT_FOUND = 4404
REASONS = {
    CLOSE_RESTARTING: "shutting down",
    CLOSE_BUSY: "too much at once: come back later",
    CLOSE_UNKNOWN_TOPIC: "no such topic",
    CLOSE_SIGNED_OUT: "signed out",
    CLOSE_FORBIDDEN: "not allowed",
    CLOSE_NOT_FOUND: "not found",
}


class _Refused(Exception):
    """The socket is closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One page that somebody looks at."""

    runtime: GatewayRuntime
    live: LivePages

    async def connect(self) -> None:
        """Authenticates before it serves; refuses with the close code that says why."""
        self._task: asyncio.Task[None] | None = None
        self.runtime, self.live = self.scope["runtime"], self.scope["live"]
        refused, sources = 0, list[Source[Part]]()
        try:
            sources = await self._admit()
        except _Refused as refusal:
            refused = refusal.code
        try:
            # Accepted also where it is refused: a close code reaches the client only after the
            # handshake.
            await self.accept()
        except BaseException:
            self._leave()
            raise
        if refused:
            await self._close(refused)
        else:
            self._task = asyncio.ensure_future(self._show(sources))

    async def disconnect(self, code: int) -> None:
        """Follows no more."""
        self._leave()
        if self._task is not None:
            self._task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is expected of a client."""

    async def _admit(self) -> list[Source[Part]]:
        """What to follow, and a seat; raises _Refused."""
        slug = self.scope["url_route"]["kwargs"].get("slug")
        try:
            check_origin(header(self.scope, b"origin"), header(self.scope, b"host"))
            self._check_host(slug)
            query = parse_qs(self.scope["query_string"].decode("latin-1"))
            asked = self.live.asked(query.get("topics", [""])[-1])
            needs = frozenset() if slug is None else self.live.needs(asked)
            session_key = session_key_in(header(self.scope, b"cookie"))
            await in_database(count_read_from, address_of(self.scope))
            viewer = await in_database(viewer_of, session_key, slug, needs)
            if viewer.place is None:
                sources = self.live.operator_sources(asked, self.runtime.redis)
                self._zone = ZoneInfo("UTC")
            else:
                sources = self.live.sources(asked, viewer.place)
                self._zone = ZoneInfo(viewer.place.time_zone)
            if self.runtime.draining:
                raise _Refused(CLOSE_RESTARTING)
            sitting = viewer.sitting
            self.live.join(self, sitting.user_id, self.runtime.redis)
            self.runtime.sittings.sit(self, sitting, self._signed_out, self._not_allowed)
        except (DatabaseError, InterfaceError, TooManyViewers):
            raise _Refused(CLOSE_BUSY) from None
        except NotSignedIn:
            raise _Refused(CLOSE_SIGNED_OUT) from None
        except TopicUnknown:
            raise _Refused(CLOSE_UNKNOWN_TOPIC) from None
        except OrganizationNotFound:
            raise _Refused(CLOSE_NOT_FOUND) from None
        except (PermissionDenied, SecondFactorMissing, NotStaff):
            raise _Refused(CLOSE_FORBIDDEN) from None
        except errors.ApiError as error:
            raise _Refused(CLOSE_BUSY if error.status == 429 else CLOSE_FORBIDDEN) from None
        return sources

    def _leave(self) -> None:
        self.live.leave(self)
        self.runtime.sittings.leave(self)

    def _check_host(self, slug: str | None) -> None:
        if slug is None and not is_operators(header(self.scope, b"host") or ""):
            raise NotStaff

    async def _show(self, sources: list[Source[Part]]) -> None:
        with self.live.feeds.following(*sources) as follower:
            code = await self._tell(follower)
        await self._close(code)

    async def _tell(self, follower: Follower[Part]) -> int:
        """Sends what is new; returns with what to close."""
        while not self.runtime.draining:
            try:
                async with asyncio.timeout(settings.LIVE_S):
                    news = await follower.news()
            except TimeoutError:
                continue
            except Gone:
                return CLOSE_NOT_FOUND
            if not await self._sent(news.values()):
                metrics.LIMIT_HITS.labels("live_slow_viewers").inc()
                return CLOSE_BUSY
            await asyncio.sleep(settings.LIVE_S)
        return CLOSE_RESTARTING

    async def _sent(self, parts: Collection[Part]) -> bool:
        """False for a client that is gone, or takes nothing for LIVE_WRITE_TIMEOUT_S."""
        at = datetime.now(UTC)
        stamp = format_html(
            '<time id="live-time" datetime="{}">{}</time>',
            at.isoformat(timespec="seconds"),
            at.astimezone(self._zone).strftime("%H:%M:%S"),
        )
        text = "".join([*(part.html for part in parts), stamp])
        try:
            async with asyncio.timeout(settings.LIVE_WRITE_TIMEOUT_S):
                await self.send(text_data=text)
        except (TimeoutError, OSError, RuntimeError):
            # uvicorn raises OSError for a dead client, RuntimeError for one already closed.
            return False
        return True

    async def _close(self, code: int) -> None:
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self.close(code, REASONS[code])

    def _signed_out(self) -> None:
        self._end(CLOSE_SIGNED_OUT)

    def _not_allowed(self) -> None:
        self._end(CLOSE_FORBIDDEN)

    def _end(self, code: int) -> None:
        """Shows nothing more, from this moment on."""
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._close(code))
