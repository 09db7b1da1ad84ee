"""One range of bytes, as a client asks for it (RFC 9110). Pure."""

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*")


class RangeNotSatisfiable(Exception):
    """The file has no byte of what was asked for."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From `start` to before `end`."""

    start: int
    end: int


def asked_range(header: str | None, size_bytes: int) -> ByteRange | None:
    """The part that is asked for, None for all of it: several ranges, or nonsense, ask for all.

    Raises RangeNotSatisfiable.
    """
    found = _ONE_RANGE.fullmatch(header or "")
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, end = max(0, size_bytes - int(found[2])), size_bytes
    else:
        start = int(found[1])
        end = min(size_bytes, int(found[2]) + 1) if found[2] else size_bytes
        if found[2] and int(found[2]) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable
    return ByteRange(start, end)
