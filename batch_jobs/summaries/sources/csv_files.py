"""CSV with a header: a column of texts and, if there is one, of ids.

Comma, semicolon and tab are told apart by the header. A cell that is not UTF-8 is read as
Windows-1252, which is what spreadsheets write; UTF-16 is refused. A row that never ends (a quote
that is not closed) ends the job: nobody could say where the next document begins.
"""

import codecs
import csv
from collections.abc import Iterator

from batch_jobs.summaries.sources.documents import (
    ID_FIELDS,
    TEXT_FIELDS,
    Blanks,
    Cursor,
    Found,
    Input,
    InputUnreadable,
    Tick,
    checked,
)
from batch_jobs.summaries.sources.lines import read_lines

DELIMITERS = (",", ";", "\t", "|")
HEADER_BYTES_MAX = 1 << 20
_BYTES = "latin-1"
"""In which a character is a byte: cells are decoded one by one, and a row never takes more memory
for a character that it has somewhere."""


class _Rows:
    """The physical lines of a CSV file, for `csv.reader`; bounds what one row may pull."""

    def __init__(self, source: Input, offset: int, number: int, row_bytes_max: int) -> None:
        self._row_bytes_max = row_bytes_max
        self._lines = read_lines(source.stream, offset, self._row_bytes_max)
        self.offset = offset
        self.number = number
        self._row_offset = offset
        self.row_number = number + 1

    def start_row(self) -> None:
        """What comes next is a new row."""
        self._row_offset = self.offset
        self.row_number = self.number + 1

    @property
    def row_bytes(self) -> int:
        """Of the row that was begun, so far."""
        return self.offset - self._row_offset

    def __iter__(self) -> Iterator[str]:
        for line, offset in self._lines:
            self.offset = offset
            self.number += 1
            if line is None or offset - self._row_offset > self._row_bytes_max:
                raise InputUnreadable(
                    "row_too_large",
                    f"the row has more than {self._row_bytes_max} bytes: is a quote not closed?",
                    self.row_number,
                )
            mark = codecs.BOM_UTF8 if self.number == 1 else b""
            yield line.removeprefix(mark).decode(_BYTES)


def read(source: Input, cursor: Cursor) -> Iterator[Found]:
    """The documents after `cursor`: {"offset", "line", "blank"}; raises InputUnreadable."""
    delimiter = _delimiter(source)
    row_bytes_max = source.limits.row_bytes_max
    # A limit of the whole process, whose default would refuse a long document.
    csv.field_size_limit(row_bytes_max)
    # It is read again by each slice.
    rows = _Rows(source, 0, 0, HEADER_BYTES_MAX)
    header = next(_reader(rows, delimiter), [])
    names = [_cell(name).strip().lower() for name in header]
    text_column = _column(names, source.text_field, TEXT_FIELDS)
    id_column = _column(names, source.id_field, ID_FIELDS)
    if text_column is None or (id_column is None and source.id_field is not None):
        wanted = source.text_field or " or ".join(TEXT_FIELDS)
        missing = wanted if text_column is None else source.id_field
        raise InputUnreadable(
            "missing_column", f"no column {missing}; has {[name[:64] for name in names[:20]]}", 1
        )
    rows = _Rows(
        source,
        cursor.get("offset", rows.offset),
        cursor.get("line", rows.number),
        row_bytes_max,
    )
    blanks = Blanks(cursor)
    for row in _reader(rows, delimiter):
        line = rows.row_number
        is_due = not row and blanks.add(rows.row_bytes, line)
        after = {"offset": rows.offset, "line": rows.number, "blank": blanks.bytes}
        rows.start_row()
        if is_due:
            yield Tick(after)
        if row:
            name = None if id_column is None or id_column >= len(row) else _cell(row[id_column])
            text = None if text_column >= len(row) else _cell(row[text_column])
            yield checked(name, line, after, text, source.limits.document_bytes_max)


def _reader(rows: _Rows, delimiter: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(iter(rows), delimiter=delimiter)
    except csv.Error as error:
        raise InputUnreadable("invalid_csv", str(error), rows.number) from error


def _delimiter(source: Input) -> str:
    source.stream.seek(0)
    header = source.stream.readline(HEADER_BYTES_MAX)
    if header[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputUnreadable("invalid_encoding", "the file is UTF-16: save it as UTF-8", 1)
    return max(DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))


def _column(names: list[str], chosen: str | None, usual: tuple[str, ...]) -> int | None:
    wanted = usual if chosen is None else (chosen.strip().lower(),)
    return next((names.index(name) for name in wanted if name in names), None)


def _cell(text: str) -> str:
    if text.isascii():
        return text
    content = text.encode(_BYTES)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
