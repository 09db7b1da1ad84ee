"""Cuts inputs that are larger than one upload on the borders of their records: JSONL and CSV.

Every byte of the input is in exactly one part, in order; each part of a CSV begins with its header.
Holds one record in memory, and one part on disk until the next is asked for. Called by `inputs`.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.command_line.ending import CommandStopped

Records = Iterator[bytes]

DELIMITERS = (",", ";", "\t", "|")
"""Told apart by the header, as the API does."""
MARK = b"\xef\xbb\xbf"


def records_of_jsonl(stream: BinaryIO, bytes_max: int) -> Records:
    """The lines, each with its end. Raises CommandStopped for one that fits into no part."""
    while line := stream.readline(bytes_max + 1):
        _check(line, bytes_max)
        yield line


def records_of_csv(stream: BinaryIO, bytes_max: int) -> Records:
    """The records as they are written, the header first: a quoted field may hold line ends."""
    consumed: list[bytes] = []
    header = stream.readline(bytes_max + 1)

    def lines() -> Iterator[str]:
        # The mark that may begin a file would hide the first field's quote.
        line, shown = header, header.removeprefix(MARK)
        while line:
            _check(line, bytes_max)
            consumed.append(line)
            # Latin-1 maps each byte to a character, and what separates fields is ASCII.
            yield shown.decode("latin-1")
            line = shown = stream.readline(bytes_max + 1)

    delimiter = max(DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))
    csv.field_size_limit(bytes_max)
    try:
        for _ in csv.reader(lines(), delimiter=delimiter):
            record = b"".join(consumed)
            consumed.clear()
            _check(record, bytes_max)
            yield record
    except csv.Error as error:
        raise CommandStopped(f"this is no CSV: {error}") from error
    if consumed:
        yield b"".join(consumed)


def parts(
    records: Records, bytes_max: int, new_file: Callable[[], Path], *, with_header: bool
) -> Iterator[Path]:
    """Files of at most `bytes_max` bytes that hold all records, made one by one.

    With `with_header`, the first record begins each of them.
    """
    header = next(records, b"") if with_header else b""
    record = next(records, None)
    if record is None and not header:
        return
    while True:
        path = new_file()
        with path.open("wb") as file:
            file.write(header)
            size_bytes = len(header)
            while record is not None and (
                size_bytes == len(header) or size_bytes + len(record) <= bytes_max
            ):
                file.write(record)
                size_bytes += len(record)
                record = next(records, None)
        if size_bytes > bytes_max:
            raise CommandStopped(f"a record and the header are larger than {bytes_max} bytes")
        yield path
        if record is None:
            return


def _check(record: bytes, bytes_max: int) -> None:
    if len(record) > bytes_max:
        raise CommandStopped(f"a record is larger than {bytes_max} bytes")
