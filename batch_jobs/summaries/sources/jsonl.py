"""JSON lines: an object a line, with a text and, if it has one, an id. Blank lines are skipped.

A line that is no such object is a document that failed. UTF-8 only, as JSON is; a byte order mark
and CRLF are fine. Whatever a line holds, little more than its id and text is ever built of it.
"""

import codecs
import functools
import json
from collections.abc import Iterator, Sequence

import msgspec

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

PLAIN_BYTES_MAX = 1 << 20
"""A longer line is not parsed as a whole: what a few bytes spell may take fifty in memory."""


def read(source: Input, cursor: Cursor) -> Iterator[Found]:
    """The documents after `cursor`: {"offset", "line", "blank"}; raises InputUnreadable."""
    number, blanks = cursor.get("line", 0), Blanks(cursor)
    line_bytes_max = source.limits.line_bytes_max
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
    id_fields = ID_FIELDS if source.id_field is None else (source.id_field,)
    text_fields = TEXT_FIELDS if source.text_field is None else (source.text_field,)
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        if len(line) <= PLAIN_BYTES_MAX:
            value = json.loads(line.decode())
        else:
            value = _fields_of(line, (*id_fields, *text_fields))
    except UnicodeDecodeError as error:
        return _bad(number, after, f"the line is not UTF-8 ({error.reason})")
    except (ValueError, RecursionError) as error:
        return _bad(number, after, f"the line is not JSON ({error})")
    if not isinstance(value, dict):
        return _bad(number, after, "the line is not a JSON object")
    name, text = name_of(_first(value, id_fields)), _first(value, text_fields)
    return checked(name, number, after, text, source.limits.document_bytes_max)


def _fields_of(line: bytes, names: Sequence[str]) -> dict[str, object]:
    """What an object's fields of these names hold, True for a list or an object; no others."""
    found = _decoder(tuple(dict.fromkeys(names))).decode(line)
    raws = zip(names, msgspec.structs.astuple(found), strict=False)
    return {name: _value(raw) for name, raw in raws if memoryview(raw)}


def _value(raw: msgspec.Raw) -> object:
    if bytes(memoryview(raw)[:1]) in (b"[", b"{"):
        return True
    return msgspec.json.decode(raw)


@functools.lru_cache(maxsize=64)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = {f"field_{number}": name for number, name in enumerate(names)}
    shape = msgspec.defstruct(
        "Fields", [(field, msgspec.Raw, msgspec.Raw()) for field in fields], rename=fields
    )
    return msgspec.json.Decoder(shape)


def _first(value: dict[str, object], names: tuple[str, ...]) -> object:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _bad(number: int, after: Cursor, message: str) -> Document:
    return failed(None, number, after, "invalid_line", message)
