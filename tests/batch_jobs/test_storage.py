"""Both storages of files: a folder, and a server that speaks S3 on loopback."""

import io
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import boto3
import pytest
from django.conf import settings
from django.core.files.storage import Storage, storages
from django.test import override_settings
from moto.server import ThreadedMotoServer

from batch_jobs.contracts import FileInfo, FileMissing, Owner, StorageAway
from batch_jobs.files import storage
from batch_jobs.files.local_storage import LocalStorage
from batch_jobs.files.object_storage import ObjectStorage
from batch_jobs.files.reading import Span, open_file, read_spans
from batch_jobs.files.sweeping import sweep_files
from batch_jobs.files.writing import discard_files, write_file
from batch_jobs.models import StoredFile
from tests.batch_jobs.cast import make_tenant
from tests.house import free_port

pytestmark = pytest.mark.usefixtures("django_database")
BUCKET = "headrace"
CREDENTIALS = {"access_key": "of-no-use", "secret_key": "of-no-use", "region_name": "us-east-1"}
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """A server with a bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="of-no-use",
        aws_secret_access_key="of-no-use",
        region_name="us-east-1",
    ).create_bucket(Bucket=BUCKET)
    yield url
    server.stop()


@pytest.fixture(params=["local", "s3"])
def bulk_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Each of them in turn, as the one that files are kept in."""
    if request.param == "local":
        bulk = {
            "BACKEND": "batch_jobs.files.local_storage.LocalStorage",
            "OPTIONS": {"location": tmp_path / "files"},
        }
        url = ""
    else:
        url = request.getfixturevalue("s3_url")
        bulk = {
            "BACKEND": "batch_jobs.files.object_storage.ObjectStorage",
            "OPTIONS": {
                "bucket_name": BUCKET,
                "endpoint_url": url,
                "location": uuid4().hex,
                **CREDENTIALS,
            },
        }
    with override_settings(STORAGES={**settings.STORAGES, "bulk": bulk}, S3_ENDPOINT_URL=url):
        yield storages["bulk"]


@pytest.fixture(scope="module")
def owner(django_database: object) -> Owner:
    """A project."""
    acme = make_tenant("acme")
    return Owner(acme.organization_id, acme.project_id, acme.key_id)


def name_of(file: FileInfo) -> str:
    return StoredFile.objects.using("housekeeper").get(id=file.file_id).storage_name


def test_what_is_written_is_read_as_a_whole_in_ranges_and_in_spans(
    bulk_storage: Storage, owner: Owner
) -> None:
    parts = [bytes([number]) * MEGABYTE for number in range(20)]
    whole = b"".join(parts)

    file = write_file(owner, "batch_output", "out", iter(parts))

    name = name_of(file)
    assert name in storage.names_in(name[:2])
    assert file.size_bytes == len(whole)
    with open_file(owner.organization_id, file.file_id) as stored:
        stored.seek(3 * MEGABYTE - 1)
        assert stored.read(2) == b"\x02\x03"
        stored.seek(0)
        assert stored.read() == whole
    for offset, size in ((0, 1), (5 * MEGABYTE - 1, 2), (len(whole) - 3, 3)):
        assert storage.read_range(name, offset, size) == whole[offset : offset + size]
        span = Span(owner.organization_id, file.file_id, offset, size)
        assert read_spans([span, span]) == [whole[offset : offset + size]] * 2
    assert storage.read_range(name, len(whole) - 1, 5) == whole[-1:]
    assert storage.read_range(name, len(whole), 5) == b""


def test_what_was_given_up_is_swept_away_bytes_first(bulk_storage: Storage, owner: Owner) -> None:
    file = write_file(owner, "staged", "shard", [b"text"])
    halfway = write_file(owner, "staged", "shard", [b"text"])
    name = name_of(file)
    discard_files(owner.organization_id, [file.file_id, halfway.file_id])
    bulk_storage.delete(name_of(halfway))  # as a sweep that died leaves it

    sweep_files(datetime.now(UTC))

    assert storage.names_in(name[:2]) == []
    rows = StoredFile.objects.using("housekeeper").filter(organization_id=owner.organization_id)
    assert not rows.filter(id__in=[file.file_id, halfway.file_id]).exists()
    with pytest.raises(FileMissing):
        open_file(owner.organization_id, file.file_id)
    with pytest.raises(FileNotFoundError):
        storage.read_range(name, 0, 1)


def test_bytes_without_a_row_go_after_a_day(bulk_storage: Storage, owner: Owner) -> None:
    named = write_file(owner, "batch_output", "out", [b"with a row"])
    kept = name_of(named)
    orphan = storage.save(io.BytesIO(b"nobody's"))
    turn = storage.FOLDERS.index(orphan[:2])
    later = datetime.now(UTC) + timedelta(hours=23)

    def sweep_folder_after(moment: datetime) -> None:
        """At the next minute in which it is this folder's turn."""
        minute = int(moment.timestamp() // 60)
        minute += (turn - minute) % len(storage.FOLDERS)
        sweep_files(datetime.fromtimestamp(minute * 60, UTC))

    sweep_folder_after(later - timedelta(hours=5))
    assert bulk_storage.exists(orphan)
    sweep_folder_after(later + timedelta(hours=2))

    assert not bulk_storage.exists(orphan)
    assert bulk_storage.exists(kept)
    with open_file(owner.organization_id, named.file_id) as stored:
        assert stored.read() == b"with a row"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_storage_that_cannot_be_reached_says_so(kind: str, tmp_path: Path, owner: Owner) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "files").write_text("no folder")
    backends: dict[str, dict[str, Any]] = {
        "local": {
            "BACKEND": "batch_jobs.files.local_storage.LocalStorage",
            "OPTIONS": {"location": tmp_path / "files"},
        },
        "s3": {
            "BACKEND": "batch_jobs.files.object_storage.ObjectStorage",
            "OPTIONS": {"bucket_name": BUCKET, "endpoint_url": nowhere, **CREDENTIALS},
        },
    }
    bulk = backends[kind]
    with override_settings(STORAGES={**settings.STORAGES, "bulk": bulk}, S3_ENDPOINT_URL=nowhere):
        with pytest.raises(StorageAway):
            write_file(owner, "batch_output", "out", [b"x"])
        for ask in (
            lambda: storage.read_range("00/nothing", 0, 1),
            lambda: storage.open_whole("00/nothing"),
            lambda: storage.open_stream("00/nothing", 1),
            lambda: storage.delete("00/nothing"),
            lambda: storage.names_in("00"),
        ):
            with pytest.raises(StorageAway):
                ask()


def test_a_file_that_goes_away_while_it_is_read_says_so(bulk_storage: Storage) -> None:
    name = storage.save(io.BytesIO(b"x" * (9 * MEGABYTE)))

    with storage.open_stream(name, 9 * MEGABYTE) as stored:
        stored.seek(8 * MEGABYTE)
        assert stored.read(1) == b"x"
        take_away(bulk_storage, stored)
        stored.seek(0)
        with pytest.raises(StorageAway):
            stored.read()


def take_away(bulk_storage: Storage, stored: BinaryIO) -> None:
    """As a mount that is gone, and a bucket that nobody reaches."""
    if isinstance(bulk_storage, LocalStorage):
        os.dup2(os.open("/", os.O_RDONLY), stored.fileno())
    else:
        bulk_storage._bucket = boto3.resource(  # type: ignore[attr-defined]  # no types
            "s3",
            endpoint_url=f"http://127.0.0.1:{free_port()}",
            aws_access_key_id="of-no-use",
            aws_secret_access_key="of-no-use",
            region_name="us-east-1",
        ).Bucket(BUCKET)


def test_of_a_file_that_is_gone_through_only_what_is_read_is_fetched(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[int, int]] = []
    real = ObjectStorage.read_range

    def noted(self: ObjectStorage, name: str, offset: int, size_bytes: int) -> bytes:
        fetched.append((offset, size_bytes))
        return real(self, name, offset, size_bytes)

    monkeypatch.setattr(ObjectStorage, "read_range", noted)
    content = b"".join(b"%07d\n" % number for number in range(3 * MEGABYTE))
    bulk = {
        "BACKEND": "batch_jobs.files.object_storage.ObjectStorage",
        "OPTIONS": {"bucket_name": BUCKET, "endpoint_url": s3_url, **CREDENTIALS},
    }
    with override_settings(STORAGES={**settings.STORAGES, "bulk": bulk}, S3_ENDPOINT_URL=s3_url):
        name = storage.save(io.BytesIO(content))
        with storage.open_stream(name, len(content)) as stored:
            stored.seek(20 * MEGABYTE)
            assert stored.readline() == content[20 * MEGABYTE : 20 * MEGABYTE + 8]
            assert stored.seek(-8, io.SEEK_END) == len(content) - 8
            assert stored.read() == content[-8:]
        with pytest.raises(FileNotFoundError):
            storage.open_stream("00/nothing", 5)
    assert sum(size for _, size in fetched) <= 9 * MEGABYTE


def test_a_local_file_is_nobody_elses_to_read_and_its_name_says_nothing(
    tmp_path: Path, owner: Owner
) -> None:
    root = tmp_path / "files"
    bulk = {
        "BACKEND": "batch_jobs.files.local_storage.LocalStorage",
        "OPTIONS": {"location": root},
    }
    with override_settings(STORAGES={**settings.STORAGES, "bulk": bulk}):
        assert isinstance(storages["bulk"], LocalStorage)
        write_file(owner, "batch_output", "../../secret name", [b"x"])

        [file] = [path for path in root.rglob("*") if path.is_file()]

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in file.parents[:2]} == {0o700}
    assert file.relative_to(root).as_posix() == f"{file.name[:2]}/{file.name}"
    assert len(file.name) == 48
    assert not {"secret", owner.project_id.hex, owner.organization_id.hex} & set(file.parts)
