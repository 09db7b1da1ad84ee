"""Reading stored bytes: spans of many files for the pump, and whole files for those who tend jobs.

What a job reads it reads to its end: an expired file stays as long as an unfinished job needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Span:
    """Where a text lies: so many bytes of a file of that organization."""

    organization_id: UUID
    file_id: UUID
    offset: int
    size_bytes: int


def read_spans(spans: Sequence[Span]) -> list[bytes]:
    """The bytes of each span, in order; raises FileMissing. Blocks: call it on a thread."""
    raise NotImplementedError


def open_file(organization_id: UUID, file_id: UUID, using: str = "housekeeper") -> BinaryIO:
    """A stored file, seekable; the caller closes it. Raises FileMissing."""
    raise NotImplementedError
