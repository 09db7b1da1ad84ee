"""`WS /v1/stream`: several chat completions at once over one socket, the same chunks as SSE.

Client: {"type": "create", "id", "body"} and {"type": "cancel", "id"}. Server: {"id", "event":
"chunk" | "error" | "done", "data"}; `done` carries usage, finish and charge. Each request runs in a
task of its own, so that the socket keeps hearing the client. Auth is by header, or by subprotocol
with a key or a single-use ticket; never by the query string.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from billing.facade import decimal_string
from headrace import errors
from headrace.gateway.keeping import KeptFraming
from headrace.gateway.openai.answering import Answering, Framing, Payload, usage
from headrace.gateway.openai.chat_request import parse_chat_request
from headrace.gateway.openai.chat_response import ChatFraming
from headrace.gateway.orders import Caller
from headrace.gateway.pipeline import Completion, End
from headrace.gateway.request_ids import new_request_id, public_request_id
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.settling.charging import Cause
from headrace.gateway.transport import socket_admission
from headrace.gateway.transport.http import decode_json
from headrace.gateway.transport.socket_admission import (
    CLOSE_SLOW,
    CLOSE_TOO_MANY,
    CLOSE_UNAUTHORIZED,
    CLOSE_UNAVAILABLE,
    CLOSE_WAIT_S,
    admit_socket,
    dismiss_socket,
)
from headrace.telemetry import metrics
from tenants.contracts import KeyIdentity, KeyScope

ID_CHARS_MAX = 128
IDLE_CHECK_S = 1.0

CLOSE_IDLE = 1001
CLOSE_BAD_MESSAGE = 4400
CLOSE_DUPLICATE_ID = 4409
REASONS = {
    **socket_admission.REASONS,
    CLOSE_IDLE: "idle",
    CLOSE_BAD_MESSAGE: "not a message of this protocol",
    CLOSE_DUPLICATE_ID: "this id is in use",
}


class _BadMessage(Exception):
    """The client does not speak the protocol of this socket."""


class _ClientGone(Exception):
    """The client has closed its side, or takes no bytes."""


class StreamConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One socket of one key."""

    runtime: GatewayRuntime
    identity: KeyIdentity | None = None

    async def connect(self) -> None:
        """Authenticates before it serves; refuses with the close code that says why."""
        self._running: dict[str, Completion] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._last_heard = time.monotonic()
        self._idle: asyncio.Task[None] | None = None
        self.runtime = self.scope["runtime"]
        refused, identity = await admit_socket(self, KeyScope.CHAT, self._revoked)
        if refused is not None:
            await self._close(refused)
            return
        assert identity is not None
        self.identity = identity
        self._idle = asyncio.ensure_future(self._close_when_idle())

    async def disconnect(self, code: int) -> None:
        """Cancels what still runs; it is settled by the engine's counts."""
        dismiss_socket(self)
        if self._idle is not None:
            self._idle.cancel()
        self._cancel_all(Cause.CLIENT_GONE)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Starts or cancels a request and returns at once."""
        if self.identity is None:
            return
        self._last_heard = time.monotonic()
        try:
            message = _message(text_data.encode() if text_data is not None else bytes_data or b"")
        except _BadMessage:
            await self._close(CLOSE_BAD_MESSAGE)
            return
        identifier = message["id"]
        if message["type"] == "cancel":
            if identifier in self._running:
                self._running[identifier].cancel(Cause.CLIENT_GONE)
        elif identifier in self._running:
            await self._close(CLOSE_DUPLICATE_ID)
        elif len(self._running) >= settings.WEBSOCKET_REQUESTS_MAX:
            metrics.LIMIT_HITS.labels("websocket_requests").inc()
            await self._close(CLOSE_TOO_MANY)
        else:
            self._create(identifier, message["body"], self.identity)

    def _create(self, identifier: str, body: Any, identity: KeyIdentity) -> None:
        request_id = new_request_id()
        try:
            # This door always streams, whatever the body says of it.
            order = parse_chat_request({**body, "stream": True} if isinstance(body, dict) else body)
            completion = self.runtime.complete(Caller.interactive(identity, request_id), order)
        except errors.ApiError as error:
            self._keep(self._refuse(identifier, error, request_id))
            return
        self._running[identifier] = completion
        framing: Framing = ChatFraming(
            Answering(request_id, int(time.time()), order, self.runtime.token_texts)
        )
        if identity.prompts_kept_days is not None:
            framing = KeptFraming(framing, identity, request_id, msgspec.json.encode(body))
        self._keep(self._follow(identifier, completion, framing))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refuse(self, identifier: str, error: errors.ApiError, request_id: UUID) -> None:
        with contextlib.suppress(_ClientGone):
            await self._error(identifier, error, request_id)

    async def _follow(self, identifier: str, completion: Completion, framing: Framing) -> None:
        """Sends one request's events; whatever happens to the socket, the request does not stay."""
        try:
            await self._send_events(identifier, completion, framing)
        except errors.ApiError as error:
            await self._refuse(identifier, error, completion.caller.request_id)
        except _ClientGone:
            # One write that nobody takes means that nobody takes the others either.
            self._cancel_all(Cause.CLIENT_GONE)
            await self._close(CLOSE_SLOW)
        finally:
            completion.cancel(Cause.CLIENT_GONE)
            self._running.pop(identifier, None)
            if isinstance(framing, KeptFraming):
                self.runtime.spawn(framing.keep())

    async def _send_events(self, identifier: str, completion: Completion, framing: Framing) -> None:
        await completion.opened()
        opened = False
        while True:
            event = await completion.next_event()
            if isinstance(event, End) and event.error is not None:
                await self._error(identifier, event.error, completion.caller.request_id)
                return
            if not opened:
                await self._send_chunks(identifier, framing.opening())
                opened = True
            if isinstance(event, End):
                break
            await self._send_chunks(identifier, framing.part(event))
        await self._send_chunks(identifier, framing.ending(event.counts))
        await self._send(identifier, "done", done(completion.caller.request_id, event))

    async def _send_chunks(self, identifier: str, payloads: list[Payload]) -> None:
        for payload in payloads:
            await self._send(identifier, "chunk", payload)

    async def _error(self, identifier: str, error: errors.ApiError, request_id: UUID) -> None:
        data = {**error.body(), "request_id": public_request_id(request_id)}
        await self._send(identifier, "error", data)

    async def _send(self, identifier: str, event: str, data: Any) -> None:
        """Raises _ClientGone, also when the client takes nothing for STREAM_WRITE_TIMEOUT_S."""
        text = msgspec.json.encode({"id": identifier, "event": event, "data": data}).decode()
        try:
            async with asyncio.timeout(settings.STREAM_WRITE_TIMEOUT_S), self._sending:
                await self.send(text_data=text)
        except (TimeoutError, OSError, RuntimeError):
            # uvicorn raises OSError for a dead client, RuntimeError for one already closed.
            raise _ClientGone from None

    async def _close(self, code: int) -> None:
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self.close(code, REASONS[code])

    def _cancel_all(self, cause: Cause) -> None:
        for completion in list(self._running.values()):
            completion.cancel(cause)

    def _revoked(self) -> None:
        self._cancel_all(Cause.KEY_REVOKED)
        self._keep(self._close(CLOSE_UNAUTHORIZED))

    async def _close_when_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_S)
            if self._running:
                continue
            if self.runtime.draining:
                await self._close(CLOSE_UNAVAILABLE)
                return
            if time.monotonic() - self._last_heard >= settings.WEBSOCKET_IDLE_TIMEOUT_S:
                await self._close(CLOSE_IDLE)
                return


def done(request_id: UUID, end: End) -> dict[str, Any]:
    """The data of a `done` event: usage and what it cost."""
    charge_pico = end.settled.charge_pico if end.settled else None
    return {
        "request_id": public_request_id(request_id),
        "finish_reason": end.reason.value,
        "usage": usage(end.counts),
        "charge_pico": None if charge_pico is None else str(charge_pico),
        "charge": None if charge_pico is None else decimal_string(charge_pico),
    }


def _message(data: bytes) -> dict[str, Any]:
    try:
        message = decode_json(data)
    except errors.ApiError:
        raise _BadMessage from None
    if not isinstance(message, dict) or message.get("type") not in ("create", "cancel"):
        raise _BadMessage
    identifier = message.get("id")
    if not isinstance(identifier, str) or not 1 <= len(identifier) <= ID_CHARS_MAX:
        raise _BadMessage
    if message["type"] == "create" and "body" not in message:
        raise _BadMessage
    return message
