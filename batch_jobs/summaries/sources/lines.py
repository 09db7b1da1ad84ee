"""Lines of a byte stream, none longer than a limit: what is longer is skipped, never held."""

from collections.abc import Iterator
from typing import BinaryIO

from batch_jobs.summaries.sources.documents import InputUnreadable

SKIP_BYTES = 1 << 20
SKIPPED_BYTES_MAX = 2 << 30
"""Of one line: nobody is told how far that has come."""


def read_lines(
    stream: BinaryIO, offset: int, line_bytes_max: int
) -> Iterator[tuple[bytes | None, int]]:
    """Each line with its end, from `offset`, and where the next begins; None is one too long.

    Raises InputUnreadable for one that does not end within SKIPPED_BYTES_MAX.
    """
    stream.seek(offset)
    while line := stream.readline(line_bytes_max + 1):
        offset += len(line)
        if len(line) <= line_bytes_max:
            yield line, offset
            continue
        begin = offset
        while line and not line.endswith(b"\n"):
            line = stream.readline(SKIP_BYTES)
            offset += len(line)
            if offset - begin > SKIPPED_BYTES_MAX:
                message = f"a line has more than {SKIPPED_BYTES_MAX} bytes"
                raise InputUnreadable("row_too_large", message)
        yield None, offset
