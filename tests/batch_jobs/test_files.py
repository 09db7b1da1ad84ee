"""Stored files as jobs use them: written, read in spans, needed, and swept away."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.test import override_settings

from batch_jobs.contracts import FileInfo, FileMissing, JobStateWrong, Owner
from batch_jobs.facade import delete_file, read_file
from batch_jobs.files import reading, storage
from batch_jobs.files.reading import Span, lock_input, lock_inputs, open_file, read_spans
from batch_jobs.files.sweeping import sweep_files
from batch_jobs.files.writing import discard_files, write_file
from batch_jobs.models import BulkJob, StoredFile, SummaryPlan
from tenants.facade import tenant_scope
from tests.batch_jobs.cast import make_tenant

pytestmark = pytest.mark.usefixtures("django_database")


def new_owner() -> Owner:
    tenant = make_tenant("acme")
    return Owner(tenant.organization_id, tenant.project_id, tenant.key_id)


@pytest.fixture
def owner() -> Owner:
    return new_owner()


def written(
    owner: Owner, text: bytes = b"text", purpose: str = "user_data", **how: Any
) -> FileInfo:
    return write_file(owner, purpose, "in.jsonl", [text], **how)


def row_of(file: FileInfo) -> StoredFile | None:
    return StoredFile.objects.using("housekeeper").filter(id=file.file_id).first()


def name_of(file: FileInfo) -> str:
    row = row_of(file)
    assert row is not None
    return row.storage_name


def has_bytes(name: str) -> bool:
    return storage.storage().exists(name)


def job_over(owner: Owner, file_id: UUID | None, **more: Any) -> BulkJob:
    values: dict[str, Any] = {"kind": "batch", "endpoint": "/v1/chat/completions", **more}
    return BulkJob.objects.using("housekeeper").create(
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        key_id=owner.key_id,
        input_file_id=file_id,
        **values,
    )


def test_what_a_job_writes_is_read_back_in_spans() -> None:
    acme, globex = new_owner(), new_owner()
    files = [write_file(one, "staged", "shard", [b"one", b"three"]) for one in (acme, globex)]

    def span(file: FileInfo, owner: Owner, offset: int, size_bytes: int) -> Span:
        return Span(owner.organization_id, file.file_id, offset, size_bytes)

    asked = [span(files[0], acme, 3, 5), span(files[1], globex, 0, 3), span(files[0], acme, 0, 0)]

    assert [file.size_bytes for file in files] == [8, 8]
    assert read_spans(asked) == [b"three", b"one", b""]
    for nowhere in (
        span(files[0], globex, 0, 3),
        span(files[0], acme, 6, 3),
        Span(acme.organization_id, uuid4(), 0, 1),
    ):
        with pytest.raises(FileMissing):
            read_spans([nowhere])


def test_an_expired_file_is_read_to_its_end_and_a_deleted_one_is_not(owner: Owner) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    expired, deleted = written(owner, expires_at=past), written(owner)
    delete_file(owner, deleted.file_id)

    with open_file(owner.organization_id, expired.file_id) as file:
        assert file.read() == b"text"
    with pytest.raises(FileMissing):
        open_file(owner.organization_id, deleted.file_id)
    with pytest.raises(FileMissing):
        read_file(owner, expired.file_id)


def open_in(folder: str) -> list[str]:
    """What this process has open there, with and without a name."""
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [link for link in links if link.startswith(folder)]


def open_names() -> list[str]:
    return open_in(str(settings.STORAGES["bulk"]["OPTIONS"]["location"]))


def test_few_files_stay_open_and_none_for_long(owner: Owner) -> None:
    files = [written(owner, f"text {number}".encode()) for number in range(8)]
    spans = [Span(owner.organization_id, file.file_id, 5, 1) for file in files]

    def read_all(_: int) -> list[bytes]:
        return read_spans(spans)

    with override_settings(FILES_OPEN_MAX=3), ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(read_all, range(50)))
        assert answers == [[str(number).encode() for number in range(8)]] * 50
        reading.close_stale_files()
        assert len(open_names()) <= 3
    with override_settings(FILES_OPEN_S=0):
        read_spans(spans)
        discard_files(owner.organization_id, [file.file_id for file in files])
        sweep_files(datetime.now(UTC))
    reading._open_files.retire_stale(float("inf"))
    assert open_names() == []


def test_what_is_deleted_or_expired_is_swept_and_nothing_else(owner: Owner) -> None:
    now = datetime.now(UTC)
    deleted, expired, fresh, kept = (
        written(owner),
        written(owner, expires_at=now - timedelta(hours=1)),
        written(owner, expires_at=now - timedelta(seconds=1)),
        written(owner, expires_at=now + timedelta(hours=1)),
    )
    names = {file.file_id: name_of(file) for file in (deleted, expired, fresh, kept)}
    delete_file(owner, deleted.file_id)

    assert sweep_files(now) >= 2

    for file in (deleted, expired):
        assert row_of(file) is None
        assert not has_bytes(names[file.file_id])
    for file in (fresh, kept):
        assert row_of(file) is not None
        assert has_bytes(names[file.file_id])


@pytest.mark.parametrize("kind", ["batch", "summary"])
def test_what_an_unfinished_job_reads_stays_however_long_expired(owner: Owner, kind: str) -> None:
    now = datetime.now(UTC)
    file = written(owner, expires_at=now - timedelta(days=3))
    job = job_over(owner, file.file_id if kind == "batch" else None, kind=kind)
    if kind == "summary":
        SummaryPlan.objects.using("housekeeper").create(
            job=job,
            organization_id=owner.organization_id,
            options={},
            input_file_ids=[file.file_id],
        )
    name = name_of(file)

    sweep_files(now)
    assert has_bytes(name)
    BulkJob.objects.using("housekeeper").filter(id=job.id).update(state="completed")
    sweep_files(now)

    assert not has_bytes(name)


def test_a_finished_job_goes_on_naming_files_that_are_gone(owner: Owner) -> None:
    files = [written(owner, purpose="batch_output") for _ in range(3)]
    job = job_over(
        owner,
        files[0].file_id,
        state="completed",
        output_file_id=files[1].file_id,
        error_file_id=files[2].file_id,
    )
    discard_files(owner.organization_id, [file.file_id for file in files])

    assert sweep_files(datetime.now(UTC)) >= 3
    assert sweep_files(datetime.now(UTC)) == 0

    for file in files:
        row = row_of(file)
        assert row is not None
        assert row.swept_at is not None
        assert not has_bytes(row.storage_name)
        with pytest.raises(FileMissing):
            read_file(owner, file.file_id)
    job.refresh_from_db(using="housekeeper")
    assert job.input_file_id == files[0].file_id


def test_a_file_is_not_deleted_from_under_a_job_that_is_being_made(owner: Owner) -> None:
    file = written(owner)
    locked, tried = threading.Event(), threading.Event()

    def delete() -> str:
        locked.wait()
        tried.set()
        try:
            delete_file(owner, file.file_id)
        except JobStateWrong:
            return "refused"
        return "deleted"

    with ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(delete)
        with tenant_scope(owner.organization_id):
            assert lock_input(owner, file.file_id) == read_file(owner, file.file_id)
            locked.set()
            tried.wait()
            BulkJob.objects.create(
                organization_id=owner.organization_id,
                project_id=owner.project_id,
                key_id=owner.key_id,
                kind="batch",
                endpoint="/v1/embeddings",
                input_file_id=file.file_id,
            )
        assert deleting.result() == "refused"
    assert read_file(owner, file.file_id) == file
    other = new_owner()
    for nobody in (Owner(owner.organization_id, other.project_id, owner.key_id), other):
        with tenant_scope(nobody.organization_id), pytest.raises(FileMissing):
            lock_input(nobody, file.file_id)


def test_files_of_a_job_are_locked_together_or_not_at_all(owner: Owner) -> None:
    first, second, staged = written(owner), written(owner), written(owner, purpose="staged")
    asked = [second.file_id, first.file_id]

    with tenant_scope(owner.organization_id):
        assert lock_inputs(owner, asked) == [second, first]
    for nobodys in (uuid4(), staged.file_id):
        with tenant_scope(owner.organization_id), pytest.raises(FileMissing, match=nobodys.hex):
            lock_inputs(owner, [*asked, nobodys])


def test_a_write_that_fails_leaves_no_row_and_no_file_open(owner: Owner) -> None:
    def parts() -> Any:
        yield b"one"
        assert len(open_in(str(settings.TEMPORARY_FOLDER))) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_file(owner, "batch_output", "out", parts())

    rows = StoredFile.objects.using("housekeeper").filter(organization_id=owner.organization_id)
    assert not rows.exists()
    assert open_in(str(settings.TEMPORARY_FOLDER)) == []
