"""What a project sees of its files: one, a page of them, their bytes; and deleting one.

Another project's or tenant's file, an expired, a deleted and a staged one are FileMissing alike.
Called through the facade.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from batch_jobs.contracts import FileContent, FileInfo, JobStateWrong, Owner
from batch_jobs.files import storage
from batch_jobs.files.rows import info_of, missing, visible
from batch_jobs.models import BulkJob, JobState, StoredFile
from tenants.facade import tenant_scope

ENDED = (JobState.COMPLETED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED)


def list_files(
    owner: Owner,
    *,
    rows_max: int,
    after: UUID | None = None,
    ascending: bool = False,
    purpose: str | None = None,
) -> Sequence[FileInfo]:
    """The project's files behind `after`, newest first unless `ascending`."""
    files = visible(owner)
    if purpose is not None:
        files = files.filter(purpose=purpose)
    if after is not None:
        files = files.filter(id__gt=after) if ascending else files.filter(id__lt=after)
    with tenant_scope(owner.organization_id):
        return [info_of(row) for row in files.order_by("id" if ascending else "-id")[:rows_max]]


def read_file(owner: Owner, file_id: UUID) -> FileInfo:
    """One file; raises FileMissing."""
    return info_of(_row(owner, file_id))


def open_content(owner: Owner, file_id: UUID) -> FileContent:
    """What `read_content` takes; raises FileMissing."""
    row = _row(owner, file_id)
    return FileContent(info_of(row), row.storage_name)


def read_content(content: FileContent, offset: int, size_bytes: int) -> bytes:
    """A part of a file; raises FileMissing where it was removed meanwhile. No transaction."""
    try:
        return storage.read_range(content.storage_name, offset, size_bytes)
    except FileNotFoundError:
        raise missing(content.info.file_id) from None


def delete_file(owner: Owner, file_id: UUID) -> None:
    """The file is gone at once, its bytes with the next sweep.

    Raises FileMissing, and JobStateWrong while an unfinished job reads it.
    """
    with tenant_scope(owner.organization_id):
        # Whoever makes a job of it holds this lock until the job is there to be seen.
        row = visible(owner).filter(id=file_id).select_for_update(no_key=True).first()
        if row is None:
            raise missing(file_id)
        if _is_needed(row):
            raise JobStateWrong("A job that has not ended reads this file; cancel the job first.")
        StoredFile.objects.filter(id=row.id).update(deleted_at=Now())


def _row(owner: Owner, file_id: UUID) -> StoredFile:
    with tenant_scope(owner.organization_id):
        row = visible(owner).filter(id=file_id).first()
    if row is None:
        raise missing(file_id)
    return row


def _is_needed(row: StoredFile) -> bool:
    return (
        BulkJob.objects.filter(organization_id=row.organization_id)
        .exclude(state__in=ENDED)
        .filter(Q(input_file_id=row.id) | Q(plan__input_file_ids__contains=[row.id]))
        .exists()
    )
