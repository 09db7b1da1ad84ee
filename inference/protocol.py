"""The frames between a web or worker process and an engine.

Length-prefixed msgpack over one asyncio stream, many requests multiplexed by request id. The engine
speaks first (`Hello`). All cross-process messages are in this file; both sides import it, so it
must stay free of torch. Raises ProtocolError for a frame that is too long or does not decode.
"""

import asyncio
import struct
from typing import TypeVar

import msgspec

from inference.contracts import (
    Chunk,
    EngineStats,
    Finish,
    GenerationRequest,
    ModelLimits,
    StepTrace,
)

PROTOCOL_VERSION = 2
FRAME_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame either side accepts; a prompt of 128k tokens takes about 0.6 MB."""
CREDIT_FRAMES = 64
"""Chunk frames an engine may have in flight to one connection before it must wait for credit.
Without credit it merges what each request gains into one later chunk: memory stays bounded by
max_tokens, and a slow reader never stops the step loop."""

_LENGTH = struct.Struct(">I")


class ProtocolError(Exception):
    """The peer sent something that is not a frame of this protocol."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Engine -> client, once, first. A client with another bundle hash or version hangs up."""

    protocol: int
    engine_id: str
    model: str
    bundle_hash: str
    limits: ModelLimits


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Client -> engine: send me the tokenizer bundle."""


class Description(msgspec.Struct, frozen=True, tag="description"):
    """Engine -> client: the bundle's files, by name."""

    bundle_hash: str
    files: dict[str, bytes]


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Client -> engine: compute these. Each is answered by chunks and exactly one finish."""

    requests: list[GenerationRequest]


class Chunks(msgspec.Struct, frozen=True, tag="chunks"):
    """Engine -> client: what one step added to the requests of this connection."""

    chunks: list[Chunk]


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """Engine -> client: requests that ended; repeated on any connection until acknowledged."""

    finishes: list[Finish]


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """Client -> engine: these finishes are settled; forget them."""

    request_ids: list[str]


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Client -> engine: stop computing these; their finish (cancelled) still comes."""

    request_ids: list[str]


class Credit(msgspec.Struct, frozen=True, tag="credit"):
    """Client -> engine: `frames` more chunk frames were received."""

    frames: int


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Client -> engine: refuse new work, finish what runs within `grace_s`, then exit."""

    grace_s: float


class StatsRequest(msgspec.Struct, frozen=True, tag="stats_request"):
    """Client -> engine: answer with a `Stats`."""


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """Engine -> client."""

    stats: EngineStats


class TraceRequest(msgspec.Struct, frozen=True, tag="trace_request"):
    """Client -> engine: answer with a `Trace`."""


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Engine -> client: the last steps, oldest first."""

    steps: list[StepTrace]


FromClient = Describe | Submit | Ack | Abort | Credit | Drain | StatsRequest | TraceRequest
FromEngine = Hello | Description | Chunks | Finished | Stats | Trace
Frame = FromClient | FromEngine

FrameT = TypeVar("FrameT")

_encoder = msgspec.msgpack.Encoder()
_client_decoder: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_engine_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


def encode(frame: Frame) -> bytes:
    """One frame with its length prefix; raises ProtocolError past FRAME_BYTES_MAX."""
    body = _encoder.encode(frame)
    if len(body) > FRAME_BYTES_MAX:
        raise ProtocolError(f"frame of {len(body)} bytes is over {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(body)) + body


async def read_from_client(reader: asyncio.StreamReader) -> FromClient | None:
    """The next frame of a client, or None at a clean end of stream."""
    body = await _read_body(reader)
    return None if body is None else _decode(_client_decoder, body)


async def read_from_engine(reader: asyncio.StreamReader) -> FromEngine | None:
    """The next frame of an engine, or None at a clean end of stream."""
    body = await _read_body(reader)
    return None if body is None else _decode(_engine_decoder, body)


async def _read_body(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > FRAME_BYTES_MAX:
            raise ProtocolError(f"peer announced a frame of {length} bytes")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _decode(decoder: "msgspec.msgpack.Decoder[FrameT]", body: bytes) -> FrameT:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolError(f"undecodable frame: {error}") from error
