"""An answer as an SSE stream: the first byte, the chunks, the keep-alives and the end.

Waits on one event per stream, which the pipeline, the client's disconnect and the keep-alive's
timer all set: a task per chunk would cost a fifth of a chunk's processor time. Called by
`generation_route`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing

from django.conf import settings

from headrace.gateway.openai.answering import Framing
from headrace.gateway.pipeline import Completion, End
from headrace.gateway.transport import sse
from headrace.gateway.transport.http import (
    ClientGone,
    Send,
    encode_headers,
    send_part,
    start_response,
)
from inference.contracts import Chunk


async def stream(
    completion: Completion,
    framing: Framing,
    listener: "asyncio.Future[None]",
    send: Send,
    headers: dict[str, str],
) -> None:
    """Sends headers with the first news of the engine, so that early failures keep their status.

    `listener` is done when the client has gone. Raises ClientGone, or the ApiError of a request
    that failed before its first byte.
    """
    started = False

    async def start() -> None:
        nonlocal started
        if not started:
            started = True
            await start_response(send, 200, [*sse.HEADERS, *encode_headers(headers)])
            if opening := framing.opening():
                await send_part(send, sse.frames(opening))

    async with aclosing(_events(completion, listener)) as events:
        async for event in events:
            if isinstance(event, End):
                if event.error is not None and not started:
                    raise event.error
                await start()
                # Never a made-up finish, and no [DONE] after a failure: SDKs raise on the object.
                ending = (
                    sse.frames(framing.ending(event.counts)) + sse.DONE
                    if event.error is None
                    else sse.frames([event.error.body()])
                )
                await send_part(send, ending, last=True)
                return
            await start()
            if event is None:
                await send_part(send, sse.KEEPALIVE)
            elif payloads := framing.part(event):
                await send_part(send, sse.frames(payloads))


async def _events(
    completion: Completion, listener: "asyncio.Future[None]"
) -> AsyncGenerator[Chunk | End | None]:
    """The completion's events, and None where a keep-alive is due; ends after the End."""
    listener.add_done_callback(lambda _: completion.wake())
    with closing(_Silence(completion.wake)) as silence:
        while True:
            if listener.done():
                raise ClientGone
            event = completion.ready()
            if event is not None:
                silence.heard()
                yield event
                if isinstance(event, End):
                    return
            elif silence.too_long():
                silence.heard()
                yield None
            else:
                await completion.news()


class _Silence:
    """How long a stream has said nothing; one timer, however many chunks go by."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(settings.STREAM_KEEPALIVE_S, self._look)

    def heard(self) -> None:
        """Something is being sent."""
        self._heard_at = self._loop.time()

    def too_long(self) -> bool:
        """Whether a keep-alive is due."""
        return self._loop.time() - self._heard_at >= settings.STREAM_KEEPALIVE_S

    def close(self) -> None:
        """Ends the timer."""
        self._timer.cancel()

    def _look(self) -> None:
        if self.too_long():
            self._wake()
            wait_s = float(settings.STREAM_KEEPALIVE_S)
        else:
            wait_s = self._heard_at + settings.STREAM_KEEPALIVE_S - self._loop.time()
        self._timer = self._loop.call_later(wait_s, self._look)
