"""Lines of a byte stream, none longer than a limit: what is longer is skipped, never held."""

from collections.abc import Iterator
from typing import BinaryIO

SKIP_BYTES = 1 << 20


def read_lines(
    stream: BinaryIO, offset: int, line_bytes_max: int
) -> Iterator[tuple[bytes | None, int]]:
    """Each line with its end, from `offset`, and where the next begins; None is one too long."""
    stream.seek(offset)
    while line := stream.readline(line_bytes_max + 1):
        offset += len(line)
        if len(line) <= line_bytes_max:
            yield line, offset
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(SKIP_BYTES)
            offset += len(line)
        yield None, offset
