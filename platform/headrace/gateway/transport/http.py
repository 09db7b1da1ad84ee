"""Raw ASGI in and out: reading a bounded body, sending JSON, hearing the client leave.

The token routes use these instead of a framework because a framework's middleware tends to hide
the disconnect that must stop the engine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Self
from uuid import UUID

import msgspec
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from headrace import errors
from headrace.gateway.request_ids import new_request_id, public_request_id
from headrace.telemetry import metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

THREADED_DECODE_BYTES = 256 * 1024
"""Larger bodies are decoded in a thread: 20 MB take a fifth of a second."""


class ClientGone(Exception):
    """The client closed the connection, or stopped taking bytes."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that (lower-case) name, as text."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def host_is_ours(scope: Scope) -> bool:
    """Whether the request's Host is one of ALLOWED_HOSTS; Django asks the same on its routes.

    A page that rebinds its own name to our address would else speak to us as ourselves.
    """
    return _is_allowed(header(scope, b"host") or "", tuple(settings.ALLOWED_HOSTS))


@lru_cache(maxsize=64)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


async def read_body(receive: Receive) -> bytes:
    """The whole request body; raises ApiError 408, 413 or 503, or ClientGone."""
    try:
        async with asyncio.timeout(settings.BODY_READ_TIMEOUT_S):
            return await _read_body(receive)
    except TimeoutError:
        raise errors.body_late() from None


async def parse_json(body: bytes) -> Any:
    """A request body as JSON, in a thread if it is large; raises ApiError 400."""
    if len(body) > THREADED_DECODE_BYTES:
        return await asyncio.to_thread(decode_json, body)
    return decode_json(body)


def decode_json(body: bytes) -> Any:
    """Bounded JSON: as deep as JSON_DEPTH_MAX and as many values as JSON_VALUES_MAX.

    Raises ApiError 400. The count is taken on the bytes, before anything is built: twenty
    megabytes of empty lists would otherwise become half a gigabyte of objects.
    """
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if values > settings.JSON_VALUES_MAX:
        raise errors.invalid("The JSON body holds too many values.", None, "invalid_json")
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.invalid(
            f"We could not parse the JSON body of your request: {error}", None, "invalid_json"
        ) from None
    if _too_deep(payload, settings.JSON_DEPTH_MAX):
        raise errors.invalid("The JSON body is nested too deeply.", None, "invalid_json")
    return payload


class BodyRoom:
    """What one body takes of the room for all bodies of this process, until the block is left.

    Touched by the event loop alone: it is one counter for the process.
    """

    _taken_bytes = 0

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        BodyRoom._taken_bytes -= self._size

    def expect(self, scope: Scope) -> None:
        """Raises ApiError 413 for a body that says it is too large, before a byte is read."""
        length = header(scope, b"content-length") or ""
        if length.isdecimal() and int(length) > self._bytes_max:
            raise errors.body_too_large(self._bytes_max)

    def take(self, message: Message) -> None:
        """Counts a part of the body; raises ApiError 413 or 503."""
        part_bytes = len(message.get("body", b""))
        self._size += part_bytes
        BodyRoom._taken_bytes += part_bytes
        if self._size > self._bytes_max:
            raise errors.body_too_large(self._bytes_max)
        if BodyRoom._taken_bytes > settings.BODIES_BYTES_MAX:
            metrics.LIMIT_HITS.labels("bodies_bytes").inc()
            raise errors.overloaded("The server is reading too many bodies; try again shortly.")


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    with BodyRoom(settings.BODY_BYTES_MAX) as room:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            room.take(message)
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(parts)


def _too_deep(payload: Any, depth_max: int) -> bool:
    layer = [payload]
    for _ in range(depth_max):
        layer = [
            child
            for node in layer
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not layer:
            return False
    return True


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed its side."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, payload: Any, headers: Iterable[Header] = ()) -> None:
    """A whole JSON response."""
    await send_encoded(send, status, msgspec.json.encode(payload), headers)


async def send_encoded(send: Send, status: int, body: bytes, headers: Iterable[Header]) -> None:
    """A whole response whose JSON is already written."""
    await start_response(
        send,
        status,
        [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers],
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send, error: errors.ApiError, headers: Mapping[str, str] | None = None
) -> None:
    """An error as JSON with its retry advice; `x-request-id` is there unless `headers` has one."""
    fresh = {"x-request-id": public_request_id(new_request_id())}
    await send_json(
        send,
        error.status,
        error.body(),
        encode_headers({**fresh, **(headers or {}), **error.headers()}),
    )


def with_request_id(send: Send, request_id: UUID) -> Send:
    """`send` that puts an `x-request-id` on the response, for answers that have none yet."""
    named = public_request_id(request_id).encode()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", named)]
        await send(message)

    return sending


async def start_response(send: Send, status: int, headers: Iterable[Header]) -> None:
    """The status line and headers."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def send_part(send: Send, body: bytes, *, last: bool = False) -> None:
    """A piece of a streamed body; raises ClientGone if the client takes none for too long."""
    try:
        async with asyncio.timeout(settings.STREAM_WRITE_TIMEOUT_S):
            await send({"type": "http.response.body", "body": body, "more_body": not last})
    except TimeoutError:
        raise ClientGone from None


def encode_headers(headers: dict[str, str]) -> list[Header]:
    """As ASGI wants them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
