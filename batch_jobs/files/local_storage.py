"""Files in a folder of this machine, for one box or a shared mount.

Readable by our own account only; a file is on the disk before its name is told to anybody.
"""

import io
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from django.core.files import File
from django.core.files.storage import FileSystemStorage

from batch_jobs.files.faults import faults_told

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class LocalStorage(FileSystemStorage):
    """Django's file storage, private and durable. Named by `settings.STORAGES`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            file_permissions_mode=FILE_MODE, directory_permissions_mode=FOLDER_MODE, **options
        )

    def _save(self, name: str, content: IO[bytes]) -> str:
        name = super()._save(name, content)  # type: ignore[misc]  # the stubs leave it out
        path = Path(self.path(name))
        # The row that names the file is durable at once; so must be its bytes and its entry.
        for place in (path, path.parent, path.parent.parent):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return name

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        return File(self.open_stream(name, 0))

    def open_stream(self, name: str, size_bytes: int) -> BinaryIO:
        """The file itself, whatever its size; raises FileNotFoundError."""
        return io.BufferedReader(_ToldFile(self.path(name)))

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """A part of the file, shorter where it ends; raises FileNotFoundError."""
        with Path(self.path(name)).open("rb") as file:
            file.seek(offset)
            return file.read(size_bytes)


class _ToldFile(io.FileIO):
    """A file whose disk or mount may go away while it is read."""

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        """Raises StorageAway."""
        with faults_told():
            return super().readinto(buffer)

    def readall(self) -> bytes:
        """Raises StorageAway."""
        with faults_told():
            return super().readall()
