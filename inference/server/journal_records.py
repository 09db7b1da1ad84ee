"""The journal's records as bytes: length, checksum, body; and how to read past damaged ones.

Pure: it sees bytes, never files. A record that does not match its checksum is never believed, and
never keeps the records after it from being found. Used by the journal only.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from inference.protocol import Ack, Finished

Record = Finished | Ack

_HEADER = struct.Struct(">II")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_BODY_START = _encoder.encode(Ack([]))[:6]
"""How every body begins: a map of two entries, the first of them named `type`."""


def pack(record: Record) -> bytes:
    """One record as it is appended to the journal."""
    body = _encoder.encode(record)
    assert body.startswith(_BODY_START)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def split(content: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """The parts of a journal in order: offset, bytes, and whether they are a whole record.

    Together the parts are `content`; two that are no records never follow each other.
    """
    offset = 0
    while offset < len(content):
        end = _record_end(content, offset)
        is_record = end is not None
        if end is None:
            end = _next_record(content, offset)
        yield offset, content[offset:end], is_record
        offset = end


def unpack(record: bytes) -> Record:
    """A whole record; raises msgspec.DecodeError for one that this version does not know."""
    return _decoder.decode(record[_HEADER.size :])


def is_cut_off(part: bytes) -> bool:
    """Whether the last part of a journal is the beginning of a record: a write that was torn."""
    return len(part) < _HEADER.size or len(part) < _HEADER.size + _HEADER.unpack_from(part)[0]


def _record_end(content: bytes, offset: int) -> int | None:
    start = offset + _HEADER.size
    if start >= len(content):
        return None
    length: int
    checksum: int
    length, checksum = _HEADER.unpack_from(content, offset)
    body = memoryview(content)[start : start + length]
    # Eight zero bytes, as a power cut leaves them, would be an empty record of checksum 0.
    if not length or len(body) < length or zlib.crc32(body) != checksum:
        return None
    return start + length


def _next_record(content: bytes, damaged: int) -> int:
    """Where the next whole record begins, or the end."""
    body = damaged + _HEADER.size
    while (body := content.find(_BODY_START, body + 1)) >= 0:
        if _record_end(content, body - _HEADER.size) is not None:
            return body - _HEADER.size
    return len(content)
