"""Reading stored bytes: spans of many files for the pump, and whole files for those who tend jobs.

What a job reads it reads to its end: an expired file stays as long as an unfinished job needs it,
so expiry is not asked here. Never called with what a client sent: doors use `listing`.
"""

import atexit
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

from django.conf import settings

from batch_jobs.contracts import FileInfo, FileMissing, Owner
from batch_jobs.files import storage
from batch_jobs.files.rows import info_of, missing, visible
from batch_jobs.models import StoredFile

HOUSEKEEPER_ALIAS = "housekeeper"


@dataclass(frozen=True, slots=True)
class Span:
    """Where a text lies: so many bytes of a file of that organization."""

    organization_id: UUID
    file_id: UUID
    offset: int
    size_bytes: int


def read_spans(spans: Sequence[Span]) -> list[bytes]:
    """The bytes of each span, in order; raises FileMissing, StorageAway.

    Blocks: call it on a thread.
    """
    return [_open_files.read(span) for span in spans]


def open_file(organization_id: UUID, file_id: UUID) -> BinaryIO:
    """A stored file, seekable, to go through; the caller closes it.

    Raises FileMissing, StorageAway.
    """
    row = _row(organization_id, file_id)
    try:
        return storage.open_stream(row.storage_name, row.size_bytes)
    except FileNotFoundError:
        raise missing(file_id) from None


def _open_whole(organization_id: UUID, file_id: UUID) -> BinaryIO:
    row = _row(organization_id, file_id)
    try:
        return storage.open_whole(row.storage_name)
    except FileNotFoundError:
        raise missing(file_id) from None


def _row(organization_id: UUID, file_id: UUID) -> StoredFile:
    rows = StoredFile.objects.using(HOUSEKEEPER_ALIAS)
    row = rows.filter(organization_id=organization_id, id=file_id, deleted_at=None).first()
    if row is None:
        raise missing(file_id)
    return row


def lock_input(owner: Owner, file_id: UUID) -> FileInfo:
    """A file that a new job is going to read; raises FileMissing as the doors do.

    Call it in the transaction that adds the job, inside the tenant's scope: until that ends the
    file cannot be deleted, and afterwards the job keeps it.
    """
    return lock_inputs(owner, [file_id])[0]


def lock_inputs(owner: Owner, file_ids: Sequence[UUID]) -> list[FileInfo]:
    """The same for several files, in the order in which they are named."""
    # Locked in one order by everybody: two jobs over the same files never wait for each other.
    rows = visible(owner).filter(id__in=file_ids).order_by("id").select_for_update(no_key=True)
    found = {row.id: info_of(row) for row in rows}
    for file_id in file_ids:
        if file_id not in found:
            raise missing(file_id)
    return [found[file_id] for file_id in file_ids]


class _OpenFile:
    """One file between two looks into it, opened when it is looked into."""

    def __init__(self, organization_id: UUID, file_id: UUID) -> None:
        self._key = (organization_id, file_id)
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._is_retired = False
        self.stale_at = time.monotonic() + settings.FILES_OPEN_S

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Raises FileMissing, StorageAway."""
        with self._lock:
            if self._file is None:
                self._file = _open_whole(*self._key)
            self._file.seek(offset)
            part = self._file.read(size_bytes)
            if self._is_retired:
                self._close()
        return part

    def retire(self) -> None:
        """Closes the file, once nobody reads it; who still holds this may read on."""
        with self._lock:
            self._is_retired = True
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _OpenFiles:
    """Those of this process, at most FILES_OPEN_MAX for FILES_OPEN_S. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[UUID, UUID], _OpenFile] = OrderedDict()

    def read(self, span: Span) -> bytes:
        """Raises FileMissing, also for a span that goes past the file's end."""
        key = (span.organization_id, span.file_id)
        with self._lock:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = _OpenFile(*key)
            self._files.move_to_end(key)
        self.retire_stale()
        part = file.read(span.offset, span.size_bytes)
        if len(part) != span.size_bytes:
            raise FileMissing(f"file-{span.file_id.hex} ends before byte {span.offset}")
        return part

    def retire_stale(self, now: float | None = None) -> None:
        """Closes what is too much or was open too long."""
        if now is None:
            now = time.monotonic()
        with self._lock:
            surplus = max(0, len(self._files) - settings.FILES_OPEN_MAX)
            stale = [
                key
                for place, (key, file) in enumerate(self._files.items())
                if place < surplus or file.stale_at <= now
            ]
            retired = [self._files.pop(key) for key in stale]
        for file in retired:
            file.retire()


_open_files = _OpenFiles()
atexit.register(_open_files.retire_stale, now=math.inf)


def close_stale_files() -> None:
    """Closes what this process has had open for long: a deleted file's bytes are freed then."""
    _open_files.retire_stale()
