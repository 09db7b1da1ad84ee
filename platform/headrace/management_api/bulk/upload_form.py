"""The form of an upload: its file goes to the disk as it arrives, the rest of it is small.

Never holds a file in memory, and trusts no word of it: a file's name is shown, never used as a
path. Called by the view of `POST /v1/files`, on its thread.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from batch_jobs.facade import temporary_file
from headrace import errors
from headrace.arriving import ArrivingBody

FILE_FIELD = "file"
FILENAME_CHARS_MAX = 255
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class UploadForm:
    """What arrived: the fields, each once, and the file, which lies on the disk."""

    fields: Mapping[str, str]
    filename: str
    content: BinaryIO


@contextmanager
def read_form(meta: Mapping[str, Any], body: ArrivingBody) -> Iterator[UploadForm]:
    """Reads the whole body; the file is gone when the block is left.

    Raises ApiError 400 for what is not a form with one `file`, 413, and what `body.read` raises.
    """
    with temporary_file() as content:
        keeper = _FileKeeper(content)
        # Without a length, it being chunked, the library would take the body for empty.
        length = settings.FILE_BYTES_MAX if body.length is None else body.length
        asked = {"CONTENT_TYPE": meta.get("CONTENT_TYPE", ""), "CONTENT_LENGTH": length}
        try:
            stream: Any = _FormStream(body, keeper)  # a file to the stubs; it is only read
            parser = _FormParser(asked, stream, [keeper])
            fields, _ = parser.parse()
        except (MultiPartParserError, SuspiciousOperation) as error:
            raise errors.invalid(
                f"The body is not a form that we can read: {error}", None
            ) from None
        if length and not parser.is_whole(body.tail):
            raise errors.invalid("The form ends before its last boundary.", None)
        if keeper.filename is None:
            raise errors.invalid("'file' is required, as a file with a name.", FILE_FIELD)
        once: dict[str, str] = {}
        for name, values in fields.lists():
            if len(values) > 1:
                raise errors.invalid(f"'{name[:100]}' is given more than once.", name[:100])
            once[name] = str(values[0])
        yield UploadForm(once, keeper.filename, content)


class _FileKeeper(FileUploadHandler):
    """Writes the one file to the disk."""

    chunk_size = CHUNK_BYTES

    def __init__(self, content: BinaryIO) -> None:
        super().__init__()
        self.filename: str | None = None
        self.size_bytes = 0
        self._content = content

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        """Raises ApiError 400 for a second file, or one under another name."""
        if field_name != FILE_FIELD:
            raise errors.invalid(f"Unknown parameter: '{field_name[:100]}'.", field_name[:100])
        if self.filename is not None:
            raise errors.invalid("'file' is given more than once.", FILE_FIELD)
        self.filename = file_name

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Raises ApiError 413."""
        self.size_bytes += len(raw_data)
        if self.size_bytes > settings.FILE_BYTES_MAX:
            raise errors.body_too_large(settings.FILE_BYTES_MAX)
        self._content.write(raw_data)

    def file_complete(self, file_size: int) -> None:
        """There is no file object of Django's to hand on."""


class _FormStream:
    """The body, of which only a file may be large."""

    def __init__(self, body: ArrivingBody, keeper: _FileKeeper) -> None:
        self._body = body
        self._keeper = keeper
        self._size_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Raises ApiError 413, and what the body raises."""
        part = self._body.read(size)
        self._size_bytes += len(part)
        # What the parser still holds is no more than two chunks.
        around = self._size_bytes - self._keeper.size_bytes - 2 * CHUNK_BYTES
        if around > settings.UPLOAD_FORM_BYTES_MAX:
            raise errors.body_too_large(settings.UPLOAD_FORM_BYTES_MAX)
        return part


class _FormParser(MultiPartParser):
    """Django's, which forgives a form that was cut off, and mends names in silence."""

    def sanitize_file_name(self, file_name: str) -> str | None:
        """The name without a path; raises ApiError 400 for one that cannot be shown."""
        name = file_name.replace("\\", "/").rsplit("/", 1)[-1].strip()
        if any(unicodedata.category(character) == "Cc" for character in name):
            raise errors.invalid("The file's name holds control characters.", FILE_FIELD)
        if len(name) > FILENAME_CHARS_MAX:
            raise errors.invalid(
                f"The file's name is longer than {FILENAME_CHARS_MAX} characters.", FILE_FIELD
            )
        return None if name in ("", ".", "..") else name

    def is_whole(self, tail: bytes) -> bool:
        """Whether a body that ended so had its last boundary."""
        boundary: bytes = self._boundary  # type: ignore[attr-defined]  # not in the stubs
        return b"--" + boundary + b"--" in tail
