"""Writing stored files: bytes first, the row last, so that a row always has its bytes.

For what jobs write: nothing here asks for room. Called by those who tend jobs; uploads have a door
of their own, `uploads`.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import IO
from uuid import UUID

from django.db.models.functions import Now

from batch_jobs.contracts import FileInfo, Owner
from batch_jobs.files import storage
from batch_jobs.files.rows import info_of
from batch_jobs.models import StoredFile
from tenants.facade import tenant_scope

APP_ALIAS = "default"


def write_file(
    owner: Owner,
    purpose: str,
    filename: str,
    parts: Iterable[bytes],
    *,
    expires_at: datetime | None = None,
    using: str = "housekeeper",
) -> FileInfo:
    """Stores what `parts` yields, through a temporary file; never all of it in memory."""
    with storage.temporary_file(parts) as content:
        size_bytes = content.tell()
        name = storage.save(content)
    scope = tenant_scope(owner.organization_id) if using == APP_ALIAS else nullcontext()
    with scope:
        row = add_row(owner, purpose, filename, name, size_bytes, expires_at, using)
    return info_of(row)


def add_row(
    owner: Owner,
    purpose: str,
    filename: str,
    storage_name: str,
    size_bytes: int,
    expires_at: datetime | None,
    using: str = APP_ALIAS,
) -> StoredFile:
    """The row of bytes that are stored already, within the caller's transaction, if any."""
    row = StoredFile(
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        key_id=owner.key_id,
        purpose=purpose,
        filename=filename,
        storage_name=storage_name,
        size_bytes=size_bytes,
        created_at=datetime.now(UTC),
        expires_at=expires_at,
    )
    row.save(using=using, force_insert=True)
    return row


def discard_files(
    organization_id: UUID, file_ids: Sequence[UUID], using: str = "housekeeper"
) -> None:
    """Gives up files that jobs wrote; a sweep removes their bytes. Idempotent."""
    StoredFile.objects.using(using).filter(
        organization_id=organization_id, id__in=file_ids, deleted_at=None
    ).update(deleted_at=Now())


def size_of(content: IO[bytes]) -> int:
    """How many bytes a file holds, whatever was read of it."""
    return content.seek(0, 2)
