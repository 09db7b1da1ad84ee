"""Parquet: a column of texts and, if there is one, of ids; batch by batch, never a whole group.

What strangers wrote is read by native code, in a child process under limits: see decision 0012.
The worker itself never loads it.
"""

import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from batch_jobs.summaries.children.limits import child_command, child_environment
from batch_jobs.summaries.sources.documents import (
    ID_CHARS_MAX,
    ID_FIELDS,
    TEXT_FIELDS,
    Cursor,
    Document,
    Input,
    InputUnreadable,
    checked,
    name_of,
)

TOLD_BYTES_MAX = 1 << 16
"""Of a line that tells of a row, or of what is wrong."""
RATIO_MAX = 200
"""All texts together may have this many times the file's bytes, once they are more than
RATIO_FREE_CHARS: a few bytes may repeat the longest text for ever."""
RATIO_FREE_CHARS = 64 << 20


def read(source: Input, cursor: Cursor) -> Iterator[Document]:
    """The documents after `cursor`: {"group", "row", "line", "chars"}; raises InputUnreadable."""
    line, chars = cursor.get("line", 0), cursor.get("chars", 0)
    bytes_max = source.limits.document_bytes_max
    chars_max = max(RATIO_FREE_CHARS, RATIO_MAX * source.stream.seek(0, io.SEEK_END))
    for group, row, name, text in _rows(source, cursor):
        line += 1
        chars += len(text) if isinstance(text, str) else 0
        if chars > chars_max:
            message = f"its texts have more than {chars_max} characters, {RATIO_MAX} times its size"
            raise InputUnreadable("parquet_too_large", message)
        after = {"group": group, "row": row, "line": line, "chars": chars}
        yield checked(name_of(name), line, after, text, bytes_max)


def _rows(source: Input, cursor: Cursor) -> Iterator[list[Any]]:
    limits = source.limits
    asked = {
        "id_fields": [source.id_field] if source.id_field else ID_FIELDS,
        "id_needed": source.id_field is not None,
        "text_fields": [source.text_field] if source.text_field else TEXT_FIELDS,
        "group": cursor.get("group", 0),
        "row": cursor.get("row", 0),
        "id_chars_max": ID_CHARS_MAX + 1,
        "text_chars_max": limits.document_bytes_max + 1,
        "rows_max": limits.documents_max,
        "memory_bytes_max": limits.child_memory_bytes_max,
        "cpu_s": limits.child_cpu_s,
        "wall_s": 2 * limits.child_cpu_s,
    }
    with ExitStack() as stack:
        number = _descriptor(source, stack)
        child = stack.enter_context(
            subprocess.Popen(  # noqa: S603 - our own program
                child_command("rows", f"/proc/self/fd/{number}", json.dumps(asked)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(),
                pass_fds=(number,),
            )
        )
        stack.callback(child.kill)
        assert child.stdout is not None
        yield from _told(child.stdout)
        if child.wait() != 0:
            raise InputUnreadable(
                "invalid_parquet", "reading it took more memory or time than is allowed"
            )


def _told(stdout: IO[bytes]) -> Iterator[list[Any]]:
    """Group, row, id and text of each row; less of the last one is passed over."""
    while (line := stdout.readline(TOLD_BYTES_MAX)).endswith(b"\n"):
        told = json.loads(line)
        if isinstance(told, dict):
            raise InputUnreadable(told["code"], told["message"])
        *place, text = told
        if isinstance(text, int) and text is not True:
            content = stdout.read(text)
            if len(content) < text:
                return  # it was ended in the middle
            text = content.decode()
        yield [*place, text]


def _descriptor(source: Input, stack: ExitStack) -> int:
    """The number of an open file that a child can open again under /proc."""
    stream = source.stream
    try:
        number = stream.fileno()
    except OSError:
        stream = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack's
        source.stream.seek(0)
        shutil.copyfileobj(source.stream, stream)
        number = stream.fileno()
    # A stream that was in memory until its number was asked for may still hold some of it.
    stream.flush()
    return number
