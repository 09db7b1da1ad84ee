"""The body of an upload, read by its view as it arrives.

Django's own handler reads a body to its end before it asks whose it is. An upload's view is called
at once instead: it says who the caller is, takes a place, and only then is the first byte asked of
the client. Nothing waits on the event loop, and no more than a few parts are in memory. Called by
`asgi` for the one path that takes files.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from headrace import errors
from headrace.gateway.transport.http import Message, Receive, Scope, Send, header
from headrace.telemetry import metrics

WAITING_BYTES_MAX = 512 * 1024
"""Of one body, between the client and its view."""
TAIL_BYTES = 512
"""Kept of a body's end, to see whether it was all of it."""
_SCOPE_KEY = "headrace.arriving"


class ArrivingBody:
    """One body, on its way from the event loop to the thread of its view.

    To Django it is both the body and the channel on which it would hear of the client's leaving:
    that reaches the view as an error of `read`, and nowhere else, so that no view is cut off in the
    middle of storing what has arrived.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.tail = b""
        self.length = _length(scope)
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._change = threading.Condition()
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._rest = b""
        self._is_whole = False
        self._failure: errors.ApiError | None = None
        self._place: _Place | None = None

    async def __call__(self) -> Message:
        """Django's listener for the client's leaving: hears nothing until it is cancelled."""
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never

    @contextmanager
    def admitted(self, organization_id: UUID, bytes_max: int) -> Iterator[None]:
        """A place among this process's uploads, in which `read` may be called.

        Raises ApiError 413 for a body that says it is too large, and 503 where all are taken.
        """
        if self.length is not None and self.length > bytes_max:
            raise errors.body_too_large(bytes_max)
        with _uploads.place(organization_id, bytes_max) as place:
            self._place = place
            yield

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, b"" at the end; blocks. On the view's thread.

        Raises ApiError 408 for a client that is too slow, 413, 499 for one that has left, and 503.
        """
        assert self._place is not None
        if not self._rest:
            self._rest = self._next_part()
            self._place.take(len(self._rest))
            self.tail = (self.tail + self._rest[-TAIL_BYTES:])[-TAIL_BYTES:]
        if size < 0 or size >= len(self._rest):
            part, self._rest = self._rest, b""
        else:
            part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def close(self) -> None:
        """As a file has it; what is still on its way is nobody's."""

    def _next_part(self) -> bytes:
        with self._change:
            while not (self._parts or self._is_whole or self._failure):
                self._loop.call_soon_threadsafe(self._wanted.set)
                self._change.wait()
            if self._failure:
                raise self._failure
            if not self._parts:
                return b""
            part = self._parts.popleft()
            self._waiting_bytes -= len(part)
        return part

    async def fill(self) -> None:
        """Takes from the client whenever the view has little left; on the event loop."""
        waited_s, arrived = 0.0, 0
        while True:
            if self._waiting_bytes >= WAITING_BYTES_MAX or not arrived:
                self._wanted.clear()
                await self._wanted.wait()
            began = time.monotonic()
            pace_s = settings.UPLOAD_STALL_S + arrived / settings.UPLOAD_BYTES_PER_S_MIN - waited_s
            try:
                left_s = settings.UPLOAD_MAX_S - waited_s
                async with asyncio.timeout(min(settings.UPLOAD_STALL_S, pace_s, left_s)):
                    message = await self._receive()
            except TimeoutError:
                metrics.LIMIT_HITS.labels("upload_stall").inc()
                self.fail(errors.body_late())
                return
            waited_s += time.monotonic() - began
            if message["type"] == "http.disconnect":
                self.fail(errors.cancelled())
                return
            part = message.get("body", b"")
            arrived += len(part)
            with self._change:
                if part:
                    self._parts.append(part)
                    self._waiting_bytes += len(part)
                self._is_whole = not message.get("more_body", False)
                self._change.notify()
            if self._is_whole:
                return

    def ended(self, filling: "asyncio.Task[None]") -> None:
        """No view waits for a client of whom nothing comes any more."""
        if not filling.cancelled() and filling.exception() is not None:
            self.fail(errors.cancelled())

    def fail(self, error: errors.ApiError) -> None:
        """The view's next `read` raises `error`."""
        with self._change:
            self._failure = error
            self._change.notify()


class _Place:
    """One upload's, and what it has taken of the room for all of this process."""

    def __init__(self, uploads: "_Uploads", bytes_max: int) -> None:
        self._uploads = uploads
        self._bytes_max = bytes_max
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises ApiError 413 or 503."""
        self.size_bytes += size_bytes
        self._uploads.take(size_bytes)
        if self.size_bytes > self._bytes_max:
            raise errors.body_too_large(self._bytes_max)


class _Uploads:
    """Those of this process that are under way. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: Counter[UUID] = Counter()
        self._taken_bytes = 0

    @contextmanager
    def place(self, organization_id: UUID, bytes_max: int) -> Iterator[_Place]:
        """Raises ApiError 503 where all are taken, or the organization has a quarter of them."""
        places_max = settings.UPLOADS_MAX
        with self._lock:
            if (
                self._places.total() >= places_max
                or self._places[organization_id] >= (places_max + 3) // 4
            ):
                metrics.LIMIT_HITS.labels("uploads").inc()
                raise errors.overloaded("Too many files are being uploaded; try again shortly.")
            self._places[organization_id] += 1
        place = _Place(self, bytes_max)
        try:
            yield place
        finally:
            with self._lock:
                self._taken_bytes -= place.size_bytes
                self._places[organization_id] -= 1
                if not self._places[organization_id]:
                    del self._places[organization_id]

    def take(self, size_bytes: int) -> None:
        """Counts bytes of an upload; raises ApiError 503."""
        with self._lock:
            self._taken_bytes += size_bytes
            is_full = self._taken_bytes > settings.UPLOADS_BYTES_MAX
        if is_full:
            metrics.LIMIT_HITS.labels("uploads_bytes").inc()
            raise errors.overloaded("Too much is being uploaded; try again shortly.")


_uploads = _Uploads()


class ArrivingHandler(ASGIHandler):
    """Django's handler; a body that arrives is handed on as it is."""

    async def read_body(self, receive: Any) -> Any:
        """The library's own, or the body that stands in `receive`'s place."""
        if isinstance(receive, ArrivingBody):
            return receive
        return await super().read_body(receive)


async def take_in(django: ArrivingHandler, scope: Scope, receive: Receive, send: Send) -> None:
    """Calls the view of an upload, and feeds it.

    The view ends by itself: it waits for the client, for the database and for the storage, each
    within limits. It is never cancelled, for Django would then wait for its thread on the event
    loop, where that thread's bytes come from.
    """
    body = ArrivingBody(scope, receive)
    scope[_SCOPE_KEY] = body
    filling = asyncio.create_task(body.fill())
    filling.add_done_callback(body.ended)
    serving = asyncio.create_task(django(scope, body, send))  # type: ignore[arg-type]  # same protocol
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        body.fail(errors.cancelled())
        await serving
        raise
    finally:
        filling.cancel()


def arriving_body(scope: Scope) -> ArrivingBody:
    """The body of the request that a view was called for by `take_in`."""
    body = scope[_SCOPE_KEY]
    assert isinstance(body, ArrivingBody)
    return body


def _length(scope: Scope) -> int | None:
    length = header(scope, b"content-length") or ""
    return int(length) if length.isascii() and length.isdecimal() else None
