"""What reading an input yields, and what it is given to read with.

A document that cannot be read is one like any other, with its reason; only an input that cannot be
read as a whole raises. Every document says where reading goes on after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from batch_jobs.contracts import BatchError

Cursor = Mapping[str, Any]
"""Where reading goes on, as JSON of the source's own shape; empty at the start."""

ID_FIELDS = ("id", "custom_id")
TEXT_FIELDS = ("text", "document", "content")
ID_CHARS_MAX = 400
"""Below the 512 that an item's custom id may have: a repeated one gets a suffix."""
ENVELOPE_BYTES = 1 << 20
"""What a line or a row may hold beside its text."""
BLANK_BYTES_MAX = 64 << 20
MESSAGE_CHARS_MAX = 500
"""Of an error: it may quote what the input says, and is kept with a job and its items."""
TICK_LINES = 10_000
TICK_BYTES = 1 << 20
"""Blank lines of a source after which it says where it is."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document; `name` is its owner's id for it, None where its place has to do.

    `line` counts lines, rows or entries of its input from 1. `error_code` is None when `text` is
    what to summarise.
    """

    name: str | None
    line: int
    cursor: Cursor
    text: str = ""
    error_code: str | None = None
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """No document yet, but reading has come as far as `cursor`: time to ask whether to go on."""

    cursor: Cursor


Found = Document | Tick


class InputUnreadable(BatchError):
    """An input cannot be read at all, or no further; the job fails with it."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message[:MESSAGE_CHARS_MAX])
        self.code = code
        self.line = line


class DocumentUnreadable(BatchError):
    """One document cannot be read; it fails with this code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message[:MESSAGE_CHARS_MAX])
        self.code = code


class Extractor(Protocol):
    """Takes text out of formats that are not text."""

    def extract(self, kind: str, content: bytes) -> str:
        """The text of an `html` or `pdf` document; raises DocumentUnreadable."""
        ...


@dataclass(frozen=True, slots=True)
class InputLimits:
    """How much one document, and one input, may hold and take."""

    document_bytes_max: int
    raw_bytes_max: int
    """Of a PDF or HTML document, before its text is taken out."""
    documents_max: int
    zip_entries_max: int
    zip_bytes_max: int
    zip_ratio_max: int
    child_memory_bytes_max: int
    """Of the process that reads Parquet."""
    child_cpu_s: int
    """For a few rows of it; twice as many by the clock."""

    @property
    def line_bytes_max(self) -> int:
        """Of a line of JSON: most characters beyond ASCII, escaped, take up to three times their
        bytes, but few documents are that long."""
        return 2 * self.document_bytes_max + ENVELOPE_BYTES

    @property
    def row_bytes_max(self) -> int:
        """Of a row of CSV, of which little is escaped."""
        return self.document_bytes_max + ENVELOPE_BYTES


@dataclass(frozen=True, slots=True)
class Input:
    """An open input file and what it is read with; `stream` can seek."""

    filename: str
    stream: BinaryIO
    limits: InputLimits
    extractor: Extractor
    id_field: str | None = None
    text_field: str | None = None


class Blanks:
    """Counts what an input has between its documents; `TICK_LINES` or `TICK_BYTES` make a tick.

    Raises InputUnreadable for more than BLANK_BYTES_MAX of an input.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.bytes = cursor.get("blank", 0)
        self._lines_ticked, self._bytes_ticked = 0, self.bytes

    def add(self, size_bytes: int, line: int) -> bool:
        """One more blank line; True when a tick is due."""
        self.bytes += size_bytes
        self._lines_ticked += 1
        if self.bytes > BLANK_BYTES_MAX:
            message = f"it has more than {BLANK_BYTES_MAX} bytes of blank lines"
            raise InputUnreadable("too_many_blank_lines", message, line)
        if self._lines_ticked < TICK_LINES and self.bytes - self._bytes_ticked < TICK_BYTES:
            return False
        self._lines_ticked, self._bytes_ticked = 0, self.bytes
        return True


def checked(name: str | None, line: int, cursor: Cursor, text: object, bytes_max: int) -> Document:
    """The document that a row spells, or what is wrong with it."""
    if name is not None and len(name) > ID_CHARS_MAX:
        message = f"the id has more than {ID_CHARS_MAX} characters"
        return failed(None, line, cursor, "invalid_id", message)
    if not isinstance(text, str):
        message = "there is no text" if text is None else "the text is not a string"
        return failed(name, line, cursor, "no_text", message)
    text = storable(text)
    if not text or text.isspace():
        return failed(name, line, cursor, "no_text", "the text is empty")
    if len(text) > bytes_max or (4 * len(text) > bytes_max and len(text.encode()) > bytes_max):
        message = f"the text has more than {bytes_max} bytes"
        return failed(name, line, cursor, "document_too_large", message)
    return Document(storable(name) if name else None, line, cursor, text)


def failed(name: str | None, line: int, cursor: Cursor, code: str, message: str) -> Document:
    """A document that cannot be summarised, and why."""
    usable = storable(name) if name and len(name) <= ID_CHARS_MAX else None
    return Document(
        usable, line, cursor, error_code=code, error_message=storable(message[:MESSAGE_CHARS_MAX])
    )


def storable(text: str) -> str:
    """`text` with what PostgreSQL cannot hold replaced: NUL and halves of surrogate pairs."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def name_of(value: object) -> str | None:
    """The id that a row's field holds, as text; None when it holds none."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return str(value)
    return None
