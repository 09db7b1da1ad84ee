"""What one connection may cost before it has asked for anything: header bytes, time, a place.

h11 bounds the bytes of a request's head (`HEADERS_BYTES_MAX`); uvicorn bounds neither how long a
head may take nor how many connections there are. Bodies and streams have limits of their own in the
gateway.
"""

import asyncio

from django.conf import settings
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.telemetry import metrics


class LimitedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1, with a deadline for each request's head and a cap on connections."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Cuts what comes above CONNECTIONS_MAX; the others get until the deadline to ask."""
        super().connection_made(transport)
        if len(self.connections) > settings.CONNECTIONS_MAX:
            metrics.LIMIT_HITS.labels("connections").inc()
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Starts the deadline with the first byte of a head, and ends it with the last."""
        super().data_received(data)
        upgraded = self.transport.get_protocol() is not self
        asked = self.cycle is not None and not self.cycle.response_complete
        if upgraded or asked:
            self._head_came()
        elif self._deadline is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the deadline."""
        self._head_came()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(settings.HEADERS_TIMEOUT_S, self._overdue)

    def _head_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        metrics.LIMIT_HITS.labels("headers_timeout").inc()
        self._deadline = None
        self.transport.abort()
