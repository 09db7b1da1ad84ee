"""ZIP: an entry is a document, or an input with rows; its name is the document's id.

What cannot be read of it fails as one document: an encrypted, broken, overlong or suspiciously
small entry, or one of a kind that is not read. Folders and hidden files are passed over.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from batch_jobs.summaries.sources import single
from batch_jobs.summaries.sources.documents import (
    ID_CHARS_MAX,
    Cursor,
    DocumentUnreadable,
    Found,
    Input,
    InputUnreadable,
    Tick,
    failed,
)
from batch_jobs.summaries.sources.sniffing import HEAD_BYTES, Kind, kind_of
from batch_jobs.summaries.sources.zip_directory import check_directory

RATIO_FREE_BYTES = 1 << 20
"""An entry up to this size may be packed as well as it likes."""
_STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1

ROWS_BYTES_MAX = 4 << 30
"""Of an entry with rows: each slice unpacks it again up to where it goes on."""

UNPACKING = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error)
"""What a broken entry makes the library raise: UnicodeDecodeError is a ValueError, and
NotImplementedError a RuntimeError."""

ReadRows = Callable[[Input, Cursor, Kind], Iterator[Found]]


def read(source: Input, cursor: Cursor, read_rows: ReadRows) -> Iterator[Found]:
    """The documents after `cursor`: {"entry", "inner", "line"}; `read_rows` reads JSONL and CSV.

    Raises InputUnreadable for what is no ZIP file, or one over the limits as a whole.
    """
    limits = source.limits
    check_directory(source.stream, limits.zip_entries_max)
    source.stream.seek(0)
    try:
        archive = zipfile.ZipFile(source.stream)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise InputUnreadable("invalid_zip", f"the file is not readable: {error}") from error
    with archive:
        entries = archive.infolist()
        unpacked_bytes = sum(entry.file_size for entry in entries)
        if unpacked_bytes > limits.zip_bytes_max:
            message = f"it unpacks to {unpacked_bytes} bytes; {limits.zip_bytes_max} are allowed"
            raise InputUnreadable("zip_too_large", message)
        line = cursor.get("line", 0)
        for index in range(cursor.get("entry", 0), len(entries)):
            inner = cursor.get("inner") or {} if index == cursor.get("entry", 0) else {}
            if inner.get("done") or _is_hidden(entries[index]):
                continue
            for found in _entry(source, archive, entries[index], inner, read_rows):
                line += not isinstance(found, Tick)
                after = {"entry": index, "inner": found.cursor, "line": line}
                if isinstance(found, Tick):
                    yield Tick(after)
                else:
                    yield replace(found, line=line, cursor=after)


def _entry(
    source: Input,
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    inner: Cursor,
    read_rows: ReadRows,
) -> Iterator[Found]:
    name, done = entry.filename, {"done": True}
    try:
        _check(source, entry)
        with archive.open(entry) as stream:
            opened = replace(source, filename=name, stream=cast("BinaryIO", stream))
            kind = kind_of(name, stream.read(HEAD_BYTES))
            stream.seek(0)
            if kind in (Kind.JSONL, Kind.CSV):
                _check_rows(entry)
                for found in read_rows(opened, inner, kind):
                    if isinstance(found, Tick):
                        yield found
                    else:
                        place = f"{name[:ID_CHARS_MAX]}:{found.line}"
                        yield replace(found, name=found.name or place)
            elif kind in (Kind.TEXT, Kind.HTML, Kind.PDF):
                yield single.document(opened, name, 1, done, kind)
            else:
                message = "files of this kind are not read"
                yield failed(name, 1, done, "unsupported_type", message)
    except (DocumentUnreadable, InputUnreadable) as error:
        yield failed(name, 1, done, error.code, str(error))
    except UNPACKING as error:
        yield failed(name, 1, done, "invalid_zip_entry", f"it cannot be unpacked: {error}")


def _check(source: Input, entry: zipfile.ZipInfo) -> None:
    if entry.header_offset < 0:
        raise DocumentUnreadable("invalid_zip_entry", "it begins before the archive does")
    if entry.flag_bits & _ENCRYPTED:
        raise DocumentUnreadable("encrypted", "the entry is encrypted")
    if entry.compress_type not in _STORED:
        raise DocumentUnreadable("unsupported_type", "the entry is not packed by deflate")
    ratio_max = source.limits.zip_ratio_max
    if entry.file_size > max(RATIO_FREE_BYTES, ratio_max * entry.compress_size):
        raise DocumentUnreadable(
            "compressed_too_much", f"the entry unpacks to more than {ratio_max} times its size"
        )


def _check_rows(entry: zipfile.ZipInfo) -> None:
    if entry.file_size > ROWS_BYTES_MAX:
        message = f"an entry with rows may have {ROWS_BYTES_MAX} bytes"
        raise DocumentUnreadable("document_too_large", message)


def _is_hidden(entry: zipfile.ZipInfo) -> bool:
    parts = PurePosixPath(entry.filename).parts
    return (
        entry.is_dir()
        or not parts
        or any(part.startswith(".") and part not in (".", "..") for part in parts)
        or parts[0] == "__MACOSX"
    )
