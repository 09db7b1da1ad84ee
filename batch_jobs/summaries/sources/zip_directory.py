"""How many entries a ZIP file has, found without building them.

`zipfile` makes an object of each entry at once, whatever their number: this is asked first.
"""

import io
import struct
from typing import BinaryIO

from batch_jobs.summaries.sources.documents import InputUnreadable

DIRECTORY_BYTES_MAX = 64 << 20
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_COMMENT_BYTES_MAX = 1 << 16


def check_directory(stream: BinaryIO, entries_max: int) -> None:
    """Raises InputUnreadable when there is no directory, or it is larger than the limits."""
    location, size_bytes = _find(stream)
    if size_bytes > min(location, DIRECTORY_BYTES_MAX):
        raise InputUnreadable("zip_too_large", f"the directory has {size_bytes} bytes")
    stream.seek(location - size_bytes)
    entries = stream.read(size_bytes).count(b"PK\x01\x02")
    if entries > entries_max:
        raise InputUnreadable(
            "zip_too_large", f"it has {entries} entries; {entries_max} are allowed"
        )


def _find(stream: BinaryIO) -> tuple[int, int]:
    """Where the directory ends, and its bytes."""
    length = stream.seek(0, io.SEEK_END)
    tail_at = max(0, length - _COMMENT_BYTES_MAX - _END.size)
    stream.seek(tail_at)
    tail = stream.read()
    # One without a comment ends the file; else the last that looks like one, as `zipfile` does.
    at = len(tail) - _END.size
    if at < 0 or tail[at : at + 4] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + _END.size:
        raise InputUnreadable("invalid_zip", "the file is no ZIP file, or it was cut off")
    location = tail_at + at
    size_bytes: int = _END.unpack_from(tail, at)[5]
    located = location - _END64_LOCATOR.size - _END64.size
    if located >= 0:
        stream.seek(located)
        ends = stream.read(_END64.size + _END64_LOCATOR.size)
        if ends.startswith(b"PK\x06\x06") and ends[_END64.size :].startswith(b"PK\x06\x07"):
            return located, _END64.unpack_from(ends)[8]
    return location, size_bytes
