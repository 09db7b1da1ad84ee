"""The web process: uvicorn with a drain of our own.

On SIGTERM readiness fails and new work is answered 503 while live streams get `DRAIN_TIMEOUT_S`;
what is left then gets a final error event and is settled. Uvicorn alone would neither tell streams
about a shutdown nor ever stop waiting for them.
"""

import argparse
import asyncio
import os
import socket
from types import FrameType

import uvicorn
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "headrace.settings")

BACKLOG = 2048
CLOSE_GRACE_S = 5
"""After the drain, for connections to notice; then they are cut."""


class DrainingServer(uvicorn.Server):
    """Uvicorn that finishes its streams first, and stops at once on a second signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler: the first signal drains, the second one cuts."""
        from headrace.asgi import application

        if application.runtime is None or application.runtime.draining:
            super().handle_exit(sig, frame)
            return
        loop = asyncio.get_event_loop()
        loop.call_soon_threadsafe(lambda: application.keep(self._drain()))

    async def _drain(self) -> None:
        from headrace.asgi import application

        assert application.runtime is not None
        await application.runtime.drain(settings.DRAIN_TIMEOUT_S)
        await application.runtime.close()
        self.should_exit = True


def main() -> None:
    """`python -m headrace.lifecycle.serve --host H --port N`."""
    parser = argparse.ArgumentParser(prog="headrace.lifecycle.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    from headrace.lifecycle.http_limits import LimitedProtocol

    config = uvicorn.Config(
        "headrace.asgi:application",
        http=LimitedProtocol,
        host=arguments.host,
        port=arguments.port,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # HEADRACE_TRUSTED_PROXIES says whom to believe, at every door
        ws="websockets-sansio",
        ws_max_size=settings.WEBSOCKET_MESSAGE_BYTES_MAX,
        lifespan="on",
        timeout_graceful_shutdown=CLOSE_GRACE_S,
    )
    listeners = [_listen(arguments.host, arguments.port)]
    if settings.METRICS_PORT:
        listeners.append(_listen(settings.METRICS_HOST, settings.METRICS_PORT))
    DrainingServer(config).run(sockets=listeners)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port), backlog=BACKLOG)
    # Set on the listener, inherited by every connection; autotuning would let megabytes pile up.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.SOCKET_SEND_BYTES)
    # And a client that acknowledges nothing, or keeps its window shut, loses its connection even
    # where nobody writes any more: closing would wait for it to read what is left.
    listener.setsockopt(
        socket.IPPROTO_TCP,
        socket.TCP_USER_TIMEOUT,
        (settings.STREAM_WRITE_TIMEOUT_S + CLOSE_GRACE_S) * 1000,
    )
    return listener


if __name__ == "__main__":
    main()
