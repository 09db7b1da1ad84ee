"""Where the bytes of files lie: Django's storage under the alias `bulk`.

Names are drawn by lot and say nothing about whose a file is; no word of a tenant's is ever part of
one. The backends, local and S3, are in `local_storage` and `object_storage`.
"""

import secrets
import tempfile
from collections.abc import Iterable
from datetime import datetime
from typing import IO, BinaryIO, Protocol, cast

from django.conf import settings
from django.core.files import File
from django.core.files.storage import Storage, storages

from batch_jobs.files.faults import faults_told

STORAGE_ALIAS = "bulk"
FOLDERS = tuple(f"{number:02x}" for number in range(256))
"""Names begin with one of these, so that no folder grows without end."""
_NAME_BYTES = 24


class BulkStorage(Protocol):
    """What a backend can do beyond Django's own storage. Whatever it cannot do now is StorageAway:
    files that it hands out raise it, too."""

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """A part of the file, shorter where it ends; raises FileNotFoundError."""
        ...

    def open_stream(self, name: str, size_bytes: int) -> BinaryIO:
        """The file, seekable, to be read from anywhere on; raises FileNotFoundError."""
        ...


def storage() -> Storage:
    """The storage of this process."""
    return storages[STORAGE_ALIAS]


def save(content: IO[bytes]) -> str:
    """Stores what `content` holds from its start, under a new name that nobody can guess.

    Raises StorageAway.
    """
    name = secrets.token_hex(_NAME_BYTES)
    content.seek(0)
    with faults_told():
        return storage().save(f"{name[:2]}/{name}", File(content))


def read_range(name: str, offset: int, size_bytes: int) -> bytes:
    """A part of a stored file, shorter where it ends; raises FileNotFoundError, StorageAway."""
    with faults_told():
        return _bulk_storage().read_range(name, offset, size_bytes)


def open_whole(name: str) -> BinaryIO:
    """A stored file, at hand as a whole: for many looks into it.

    Raises FileNotFoundError, StorageAway.
    """
    with faults_told():
        return cast("BinaryIO", storage().open(name, "rb"))


def open_stream(name: str, size_bytes: int) -> BinaryIO:
    """A stored file of which no more is fetched than is read: for going through it.

    Raises FileNotFoundError, StorageAway.
    """
    with faults_told():
        return _bulk_storage().open_stream(name, size_bytes)


def delete(name: str) -> None:
    """Removes a file, if it is there; raises StorageAway."""
    with faults_told():
        storage().delete(name)


def _bulk_storage() -> BulkStorage:
    return cast("BulkStorage", storage())


def names_in(folder: str) -> list[str]:
    """All files in one of FOLDERS; raises StorageAway."""
    try:
        with faults_told():
            _, names = storage().listdir(folder)
    except FileNotFoundError:
        return []
    return [f"{folder}/{name}" for name in names]


def stored_at(name: str) -> datetime:
    """When the file was stored; raises FileNotFoundError, StorageAway."""
    with faults_told():
        return storage().get_modified_time(name)


def temporary_file(parts: Iterable[bytes] = ()) -> BinaryIO:
    """An unnamed file in the data folder, gone with its handle; `parts` are written to it.

    Raises StorageAway when there is no room.
    """
    # Without a name, not even a process that is killed leaves it behind.
    with faults_told():
        settings.TEMPORARY_FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=settings.TEMPORARY_FOLDER))  # noqa: SIM115 - the caller's
    try:
        for part in parts:
            with faults_told():
                file.write(part)
        with faults_told():
            file.flush()
    except BaseException:
        file.close()
        raise
    return file
