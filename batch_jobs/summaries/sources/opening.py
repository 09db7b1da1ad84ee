"""One door to all kinds of input: the documents of a file, from where reading stopped.

Memory stays flat whatever the file holds. Called by ingestion, and for the inputs inside a ZIP.
"""

from collections.abc import Iterator

from batch_jobs.summaries.sources import csv_files, jsonl, parquet, single, zip_files
from batch_jobs.summaries.sources.documents import Cursor, Found, Input, InputUnreadable
from batch_jobs.summaries.sources.sniffing import HEAD_BYTES, Kind, kind_of


def read_documents(source: Input, cursor: Cursor) -> Iterator[Found]:
    """The documents of an input after `cursor`, which the last one read brought.

    Where it has none for long, it ticks instead. Raises InputUnreadable when it cannot be read as
    a whole, at once or in the middle.
    """
    source.stream.seek(0)
    kind = kind_of(source.filename, source.stream.read(HEAD_BYTES))
    source.stream.seek(0)
    if kind is None:
        raise InputUnreadable(
            "unsupported_type", "it is none of JSONL, CSV, Parquet, ZIP, text, Markdown, HTML, PDF"
        )
    return _read(source, cursor, kind)


def _read(source: Input, cursor: Cursor, kind: Kind) -> Iterator[Found]:
    match kind:
        case Kind.JSONL:
            return jsonl.read(source, cursor)
        case Kind.CSV:
            return csv_files.read(source, cursor)
        case Kind.PARQUET:
            return parquet.read(source, cursor)
        case Kind.ZIP:
            return zip_files.read(source, cursor, _read)
        case Kind.TEXT | Kind.HTML | Kind.PDF:
            return single.read(source, cursor, kind)
