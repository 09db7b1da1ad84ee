"""Files in a bucket of an S3-compatible store, by django-storages (the extra `s3`).

Nothing of a file larger than a part is ever in memory: writes go out in parts, one after the other,
reads by range or through a temporary file. Named by `settings.STORAGES` when there is a bucket.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from storages.backends.s3 import S3Storage

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS_MAX = 3
MEMORY_BYTES_MAX = 1024 * 1024
"""Of a file being read as a whole; the rest of it is on the local disk."""


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
        with _faults_told():
            saved: str = super()._save(name, content)
        return saved

    def _open(self, name: str, mode: str = "rb") -> Any:
        with _faults_told():
            file = super()._open(name, mode)
            file.open()  # fetches it, which the library would do at the first read
        return file

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """A part of the file, shorter where it ends; raises FileNotFoundError, or OSError."""
        span = f"bytes={offset}-{offset + size_bytes - 1}"
        with _faults_told():
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


@contextmanager
def _faults_told() -> Iterator[None]:
    """What befalls a bucket is an OSError, as what befalls a folder is."""
    try:
        yield
    except (BotoCoreError, Boto3Error, ClientError) as error:
        raise OSError(f"the bucket does not answer as it should: {error}") from error
