"""Files in a bucket of an S3-compatible store, by django-storages (the extra `s3`).

Nothing of a file larger than a part is ever in memory: writes go out in parts, one after the other,
reads by range or through a temporary file. What befalls the bucket is StorageAway. Named by
`settings.STORAGES` when there is a bucket.
"""

import io
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from storages.backends.s3 import S3Storage

from batch_jobs.files.faults import faults_told

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FAULTS = (BotoCoreError, Boto3Error, ClientError)
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS_MAX = 3
MEMORY_BYTES_MAX = 1024 * 1024
"""Of a file being read as a whole; the rest of it is on the local disk."""
STREAM_BYTES = 4 * 1024 * 1024
"""That one request fetches of a file that is gone through."""


class ObjectStorage(S3Storage):  # type: ignore[misc]  # the library has no types
    """django-storages' S3 backend with bounded memory, time and threads."""

    def get_default_settings(self) -> dict[str, Any]:
        """The environment's bucket; keys that are not set are boto3's to find."""
        style = "path" if settings.S3_ENDPOINT_URL else "auto"
        return {
            **super().get_default_settings(),
            # Names are never used twice: asking whether one is taken would cost a request each.
            "file_overwrite": True,
            "max_memory_size": MEMORY_BYTES_MAX,
            "transfer_config": TransferConfig(use_threads=False),
            "client_config": Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"max_attempts": ATTEMPTS_MAX, "mode": "standard"},
                s3={"addressing_style": style},
            ),
        }

    def _save(self, name: str, content: IO[bytes]) -> str:
        with faults_told(*FAULTS):
            saved: str = super()._save(name, content)
        return saved

    def _open(self, name: str, mode: str = "rb") -> Any:
        with faults_told(*FAULTS):
            file = super()._open(name, mode)
            file.open()  # fetches it, which the library would do at the first read
        return file

    def delete(self, name: str) -> None:
        """Removes the file, if it is there."""
        with faults_told(*FAULTS):
            super().delete(name)

    def listdir(self, name: str) -> tuple[list[str], list[str]]:
        """Folders and files in a folder."""
        with faults_told(*FAULTS):
            listed: tuple[list[str], list[str]] = super().listdir(name)
        return listed

    def get_modified_time(self, name: str) -> datetime:
        """When the file was stored."""
        with faults_told(*FAULTS):
            stored_at: datetime = super().get_modified_time(name)
        return stored_at

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """A part of the file, shorter where it ends; raises FileNotFoundError."""
        span = f"bytes={offset}-{offset + size_bytes - 1}"
        with faults_told(*FAULTS):
            try:
                found = self.bucket.Object(self._normalize_name(name)).get(Range=span)
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == 416:
                    return b""
                if status == 404:
                    raise FileNotFoundError(name) from error
                raise
            part: bytes = found["Body"].read()
        return part

    def open_stream(self, name: str, size_bytes: int) -> BinaryIO:
        """The file, fetched as far as it is read; raises FileNotFoundError."""
        stream = io.BufferedReader(_RangedFile(self, name, size_bytes), STREAM_BYTES)
        stream.peek(1)  # whether it is there
        return stream


class _RangedFile(io.RawIOBase):
    """A file in a bucket, of which each read fetches what it reads."""

    def __init__(self, store: ObjectStorage, name: str, size_bytes: int) -> None:
        self._store, self._name, self._size_bytes, self._at = store, name, size_bytes, 0

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def seekable(self) -> bool:
        """Going somewhere costs nothing."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """As files do."""
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Raises StorageAway, FileNotFoundError."""
        target = memoryview(buffer)
        size_bytes = min(len(target), self._size_bytes - self._at)
        if size_bytes <= 0:
            return 0
        part = self._store.read_range(self._name, self._at, size_bytes)
        target[: len(part)] = part
        self._at += len(part)
        return len(part)
