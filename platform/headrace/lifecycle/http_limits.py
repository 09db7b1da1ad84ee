"""What one connection may cost before it has asked for anything: header bytes, time, a place.

uvicorn's httptools protocol bounds none of them, nor what a client goes on sending once it has its
answer; it parses a request for a fifth of what h11 takes. Bodies and streams have limits of their
own in the gateway. Called by uvicorn, which `serve` hands it to.
"""

import asyncio

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.telemetry import metrics


class HeadTooLarge(Exception):
    """More than HEADERS_BYTES_MAX of a head; what a callback raises uvicorn answers with 400."""


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, with bounded heads in bounded time and a cap on connections."""

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Cuts what comes above CONNECTIONS_MAX; the others get until the deadline to ask."""
        super().connection_made(transport)
        if len(self.connections) > settings.CONNECTIONS_MAX:
            metrics.LIMIT_HITS.labels("connections").inc()
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Counts a head that comes in pieces: the parser shows only what is complete."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > settings.HEADERS_BYTES_MAX and not self.transport.is_closing():
                self.send_400_response("The request's head is too large.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the deadline."""
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a head starts its deadline."""
        super().on_message_begin()
        self._head_bytes = 0
        self._in_head = True
        if self._deadline is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        """Raises HeadTooLarge."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Raises HeadTooLarge."""
        self._count(name)
        self._count(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The last byte of a head ends its deadline."""
        self._head_came()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Cuts a client that goes on sending after its answer, as to a body that was too large."""
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self.transport.close()

    def _count(self, part: bytes) -> None:
        self._head_bytes += len(part)
        if self._head_bytes > settings.HEADERS_BYTES_MAX:
            raise HeadTooLarge

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(settings.HEADERS_TIMEOUT_S, self._overdue)

    def _head_came(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        metrics.LIMIT_HITS.labels("headers_timeout").inc()
        self._deadline = None
        self.transport.abort()
