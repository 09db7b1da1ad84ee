"""Objects of an S3-compatible store, read with the caller's own credentials.

They are fetched here and uploaded like any file: the house fetches nothing on anybody's behalf, so
nobody can make it read what only it may read. boto3 is imported when an s3:// address is given.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from headrace.command_line.ending import CommandStopped
from headrace.command_line.packing import Entry

SCHEME = "s3://"
READ_BYTES = 1024 * 1024


def entries_of_prefix(address: str) -> Iterator[Entry]:
    """The objects below s3://bucket/prefix in the order of their keys, named by what follows it;
    or the one object that has this very address. Raises CommandStopped when there is none.
    """
    bucket, key = _parse(address)
    client = _client()
    # Whole folders: "mail/20" means mail/20/..., and not mail/2019/... beside it.
    folder = key if not key or key.endswith("/") else f"{key}/"
    found = False
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder):
        for item in page.get("Contents", ()):
            found = True
            if not item["Key"].endswith("/"):
                name = item["Key"].removeprefix(folder)
                yield _entry(client, bucket, item["Key"], name, item["Size"])
    if not found:
        if not key:
            raise CommandStopped(f"{address} is empty")
        yield _single(client, bucket, key, name=key.rsplit("/", 1)[-1])


def check_manifest(path: Path) -> None:
    """Raises CommandStopped for a line that is neither blank nor an s3:// address."""
    for number, address in _lines(path):
        if not address.startswith(SCHEME):
            raise CommandStopped(f"{path}, line {number}: not an {SCHEME} address")
        _parse(address)


def entries_of_manifest(path: Path) -> Iterator[Entry]:
    """The objects that a checked file names, one address a line."""
    client = _client()
    for _, address in _lines(path):
        bucket, key = _parse(address)
        yield _single(client, bucket, key, name=f"{bucket}/{key}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if address := line.strip():
                    yield number, address
    except UnicodeDecodeError as error:
        raise CommandStopped(f"{path}: not UTF-8") from error


@contextmanager
def faults_told() -> Iterator[None]:
    """Turns what S3 has to say into CommandStopped."""
    _import()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CommandStopped(f"S3: {error}") from error


def _single(client: Any, bucket: str, key: str, *, name: str) -> Entry:
    size_bytes = client.head_object(Bucket=bucket, Key=key)["ContentLength"]
    return _entry(client, bucket, key, name, size_bytes)


def _entry(client: Any, bucket: str, key: str, name: str, size_bytes: int) -> Entry:
    def opened() -> BinaryIO:
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
        return cast("BinaryIO", io.BufferedReader(body, READ_BYTES))

    return Entry(name, size_bytes, opened)


def _parse(address: str) -> tuple[str, str]:
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise CommandStopped(f"{address} names no bucket")
    return bucket, key


def _client() -> Any:  # boto3 makes its classes at run time
    return _import().client("s3")


def _import() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise CommandStopped(f"{SCHEME} needs boto3: pip install 'headrace[s3]'") from error
    return boto3
