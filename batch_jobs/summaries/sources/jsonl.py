"""JSON lines: an object a line, with a text and, if it has one, an id. Blank lines are skipped.

A line that is no such object is a document that failed. UTF-8 only, as JSON is; a byte order mark
and CRLF are fine.
"""

import json
from collections.abc import Iterator

from batch_jobs.summaries.sources.documents import (
    ID_FIELDS,
    TEXT_FIELDS,
    Blanks,
    Cursor,
    Document,
    Found,
    Input,
    Tick,
    checked,
    failed,
    name_of,
)
from batch_jobs.summaries.sources.lines import read_lines

ENVELOPE_BYTES = 64 * 1024
"""What a line may hold beside its text; escapes may take six bytes for one."""
ESCAPE_BYTES = 6


def read(source: Input, cursor: Cursor) -> Iterator[Found]:
    """The documents after `cursor`: {"offset", "line", "blank"}; raises InputUnreadable."""
    number, blanks = cursor.get("line", 0), Blanks(cursor)
    bytes_max = source.limits.document_bytes_max
    line_bytes_max = ESCAPE_BYTES * bytes_max + ENVELOPE_BYTES
    for line, offset in read_lines(source.stream, cursor.get("offset", 0), line_bytes_max):
        number += 1
        is_due = line is not None and line.isspace() and blanks.add(len(line), number)
        after = {"offset": offset, "line": number, "blank": blanks.bytes}
        if line is None:
            message = f"the line has more than {line_bytes_max} bytes"
            yield failed(None, number, after, "document_too_large", message)
        elif is_due:
            yield Tick(after)
        elif not line.isspace():
            yield _document(source, line, number, after)


def _document(source: Input, line: bytes, number: int, after: Cursor) -> Document:
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        return _bad(number, after, f"the line is not UTF-8 ({error.reason})")
    except (ValueError, RecursionError) as error:
        return _bad(number, after, f"the line is not JSON ({error})")
    if not isinstance(value, dict):
        return _bad(number, after, "the line is not a JSON object")
    name = name_of(_first(value, ID_FIELDS if source.id_field is None else (source.id_field,)))
    text = _first(value, TEXT_FIELDS if source.text_field is None else (source.text_field,))
    return checked(name, number, after, text, source.limits.document_bytes_max)


def _first(value: dict[str, object], names: tuple[str, ...]) -> object:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _bad(number: int, after: Cursor, message: str) -> Document:
    return failed(None, number, after, "invalid_line", message)
