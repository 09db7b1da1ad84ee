"""Files that are one document each: text, Markdown, HTML, PDF."""

import codecs
from collections.abc import Iterator

from batch_jobs.summaries.sources.documents import (
    Cursor,
    Document,
    DocumentUnreadable,
    Input,
    checked,
    failed,
)
from batch_jobs.summaries.sources.sniffing import Kind

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which begins it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read(source: Input, cursor: Cursor, kind: Kind) -> Iterator[Document]:
    """The one document, unless `cursor` is after it: {"line": 1}."""
    if not cursor:
        source.stream.seek(0)
        yield document(source, source.filename, 1, {"line": 1}, kind)


def document(source: Input, name: str, line: int, after: Cursor, kind: Kind) -> Document:
    """What `source.stream` holds from where it is, as one document under `name`."""
    limits = source.limits
    extracted = kind in (Kind.HTML, Kind.PDF)
    bytes_max = limits.raw_bytes_max if extracted else limits.document_bytes_max
    content = source.stream.read(bytes_max + 1)
    if len(content) > bytes_max:
        message = f"it has more than {bytes_max} bytes"
        return failed(name, line, after, "document_too_large", message)
    try:
        text = source.extractor.extract(kind, content) if extracted else decoded(content)
    except DocumentUnreadable as error:
        return failed(name, line, after, error.code, str(error))
    return checked(name, line, after, text, limits.document_bytes_max)


def decoded(content: bytes) -> str:
    """Text by its byte order mark, else UTF-8, else Windows-1252 with replacements."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
