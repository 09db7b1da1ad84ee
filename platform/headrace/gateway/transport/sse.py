"""Server-sent event framing for OpenAI streams. Pure.

Never sends `id:`, `retry:` or `event:` lines: OpenAI's SDKs dispatch an empty event for each later
comment once they have seen one, and fail to parse it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": ka\n\n"

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

_encoder = msgspec.json.Encoder()


def frames(payloads: Iterable[Any]) -> bytes:
    """Events: each payload as one line of JSON, and the blank line that ends it."""
    return b"".join(b"data: " + _encoder.encode(payload) + b"\n\n" for payload in payloads)
