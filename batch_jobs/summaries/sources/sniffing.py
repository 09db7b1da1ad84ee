"""What kind of input a file is: by what it begins with where that is telling, else by its name."""

import enum
from pathlib import PurePosixPath

HEAD_BYTES = 1024


class Kind(enum.StrEnum):
    """The inputs that can be read."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ZIP = "zip"
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"


_BY_SUFFIX = {
    ".jsonl": Kind.JSONL,
    ".ndjson": Kind.JSONL,
    ".json": Kind.JSONL,
    ".csv": Kind.CSV,
    ".tsv": Kind.CSV,
    ".parquet": Kind.PARQUET,
    ".zip": Kind.ZIP,
    ".txt": Kind.TEXT,
    ".text": Kind.TEXT,
    ".md": Kind.TEXT,
    ".markdown": Kind.TEXT,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".pdf": Kind.PDF,
}


def kind_of(filename: str, head: bytes) -> Kind | None:
    """The kind of a file that begins with `head`; None is one that cannot be read."""
    suffix = PurePosixPath(filename).suffix.lower()
    named = _BY_SUFFIX.get(suffix)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        # Office documents and books are ZIP files too, of nothing that we could read.
        return Kind.ZIP if named is not None or not suffix else None
    if head.startswith(b"PAR1"):
        return Kind.PARQUET
    if head.startswith(b"%PDF-"):
        return Kind.PDF
    if named is not None or suffix:
        return named
    return _of_text(head)


def _of_text(head: bytes) -> Kind | None:
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if begin.startswith(b"{"):
        return Kind.JSONL
    if begin.startswith((b"<!doctype html", b"<html")):
        return Kind.HTML
    return None if b"\0" in head else Kind.TEXT
