"""The ASGI entry: token routes and health first, sockets to Channels, the rest to Django.

Nothing but pure ASGI stands around the token routes. The gateway's runtime lives from the
lifespan's start-up to its shutdown.
"""

import asyncio
import os
import re
from collections.abc import Coroutine
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "headrace.settings")

import django

django.setup(set_prefix=False)

from channels.routing import URLRouter
from django.conf import settings
from django.urls import path

from headrace import errors
from headrace.arriving import ArrivingHandler, take_in
from headrace.console_kit.live.pages import LivePages
from headrace.console_kit.live.socket import LiveConsumer
from headrace.feeds import Feeds
from headrace.gateway.request_ids import new_request_id
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import (
    BodyRoom,
    Message,
    Receive,
    Scope,
    Send,
    encode_headers,
    host_is_ours,
    send_error,
    send_json,
    with_request_id,
)
from headrace.gateway.transport.token_routes import is_ours, token_routes
from headrace.gateway.transport.websocket import StreamConsumer
from headrace.lifecycle import health
from headrace.management_api.bulk.progress_socket import ProgressConsumer
from headrace.operator_console.live_topics import OPERATOR_TOPICS
from headrace.tenant_console.live_topics import TOPICS

_django = ArrivingHandler()
UPLOADS = re.compile(r"/v1/files|/console/[-\w]+/jobs/files", re.ASCII)
"""Where a POST brings a file, which is read as it arrives."""
SMALL_BODIES = ("/accounts/", "/console/", "/operator/", "/stripe/events")
"""Where anybody may send forms and messages, whose bodies have SMALL_BODY_BYTES_MAX."""


async def rest(scope: Scope, receive: Receive, send: Send) -> None:
    """Django, with what it has not: patience, for its views wait for the database on a thread, and
    a limit to the bodies that it reads to their end before it asks whose they are.
    """
    started = False
    request_id = new_request_id()
    scope["headrace.request_id"] = request_id
    if settings.IS_SECURE:  # TLS ends at a proxy, which alone can reach us
        scope["scheme"] = "https"
    naming_send = with_request_id(send, request_id)
    if scope["method"] == "POST" and UPLOADS.fullmatch(scope["path"]):
        await take_in(_django, scope, receive, naming_send)
        return

    patience = asyncio.timeout(settings.REST_ANSWER_MAX_S)

    async def watched_send(message: Message) -> None:
        nonlocal started
        started = True
        # A download may take long, as long as each of its parts goes out.
        patience.reschedule(asyncio.get_running_loop().time() + settings.REST_PART_MAX_S)
        await naming_send(message)

    is_small = scope["path"].startswith(SMALL_BODIES)
    bytes_max = settings.SMALL_BODY_BYTES_MAX if is_small else settings.BODY_BYTES_MAX
    refusal: errors.ApiError | None = None
    with BodyRoom(bytes_max) as room:

        async def counted_receive() -> Message:
            nonlocal refusal
            message = await receive()
            try:
                room.take(message)
            except errors.ApiError as error:
                refusal = error
                return {"type": "http.disconnect"}  # on which Django lets go of what it has read
            return message

        try:
            room.expect(scope)
            async with patience:
                await _django(scope, counted_receive, watched_send)  # type: ignore[arg-type]  # same protocol
        except errors.ApiError as error:
            refusal = error
        except TimeoutError:
            refusal = errors.overloaded("The database is away; try again shortly.")
    if refusal is not None and not started:
        headers = encode_headers(refusal.headers())
        await send_json(naming_send, refusal.status, refusal.body(), headers)


class Application:
    """Dispatches by protocol and path; owns the runtime."""

    def __init__(self) -> None:
        self.runtime: GatewayRuntime | None = None
        self.socket_routes = [
            path("v1/stream", StreamConsumer.as_asgi()),
            path("api/v1/summaries/<str:summary_id>/progress", ProgressConsumer.as_asgi()),
            path("console/<slug:slug>/live", LiveConsumer.as_asgi()),
            path("operator/live", LiveConsumer.as_asgi()),
        ]
        self._sockets = URLRouter(self.socket_routes)
        self.feeds = Feeds()
        self.live = LivePages(self.feeds, TOPICS, OPERATOR_TOPICS)
        self._kept: set[asyncio.Task[Any]] = set()  # any result: kept only from being collected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any protocol."""
        match scope["type"]:
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket" if self._is_socket(scope["path"]) and host_is_ours(scope):
                scope["runtime"] = self.runtime
                scope["feeds"] = self.feeds
                scope["live"] = self.live
                await self._sockets(scope, receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 4404})
            case _:
                await self._http(scope, receive, send)

    def _is_socket(self, asked: str) -> bool:
        return any(route.resolve(asked.removeprefix("/")) for route in self.socket_routes)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.runtime is None:
            await send_error(send, errors.overloaded("The server is starting."))
        elif health.came_for_metrics(scope):
            named = with_request_id(send, new_request_id())
            await health.show_metrics(self.runtime, scope["path"], named)
        elif scope["path"] in health.PATHS:
            await health.health(
                self.runtime, scope["path"], with_request_id(send, new_request_id())
            )
        elif not host_is_ours(scope):
            await send_error(send, errors.host_unknown())
        elif is_ours(scope["path"]):
            await token_routes(self.runtime, scope, receive, send)
        else:
            await rest(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.runtime = GatewayRuntime()
                await self.runtime.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                if self.runtime is not None:
                    await self.runtime.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside the requests, held against collection."""
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)


application = Application()
