"""An ASGI `send` that keeps a copy of the answer it passes on.

For answers that are told again (idempotency keys). The copy is bounded; a client that leaves or
stops reading does not end the recording.
"""

import asyncio

from django.conf import settings

from headrace.gateway.transport import sse
from headrace.gateway.transport.http import ClientGone, Message, Receive, Send


class Recorder:
    """Call it like `send`; the last message waits for `release()`."""

    def __init__(self, send: Send, bytes_max: int) -> None:
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = True
        """False once the answer was larger than `bytes_max`; its beginning is kept."""
        self._send = send
        self._bytes_max = bytes_max
        self._held: Message | None = None
        self._parts: list[bytes] = []
        self._bytes = 0
        self._gone = False

    @property
    def body(self) -> bytes:
        """What was answered so far, without keep-alives."""
        return b"".join(self._parts)

    async def __call__(self, message: Message) -> None:
        """Keeps a copy, then sends."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        else:
            self._keep(message.get("body", b""))
            if not message.get("more_body", False):
                self._held = message
                return
        await self._pass_on(message)

    async def release(self) -> None:
        """Sends the last message."""
        if self._held is not None:
            held, self._held = self._held, None
            await self._pass_on(held)

    def _keep(self, part: bytes) -> None:
        if part == sse.KEEPALIVE:
            return
        room = self._bytes_max - self._bytes
        if len(part) > room:
            self.complete = False
            part = part[:room]
        self._bytes += len(part)
        if part:
            self._parts.append(part)

    async def _pass_on(self, message: Message) -> None:
        if self._gone:
            return
        try:
            # Sooner than the sender's own patience ends, which would end the request too.
            async with asyncio.timeout(settings.STREAM_WRITE_TIMEOUT_S / 2):
                await self._send(message)
        except (TimeoutError, OSError, ClientGone):
            self._gone = True


def never_gone() -> Receive:
    """A `receive` of a client that has sent its body and stays for ever."""
    forever: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def receive() -> Message:
        return await asyncio.shield(forever)

    return receive
