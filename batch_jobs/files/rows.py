"""Rows of files and what others see of them. A row is written last: it always has its bytes."""

from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from batch_jobs.contracts import FileInfo, FileMissing, Owner
from batch_jobs.models import StoredFile

STAGED = "staged"
"""The purpose of what only jobs read: no door shows it."""


def info_of(row: StoredFile) -> FileInfo:
    """The row as a frozen value."""
    return FileInfo(
        file_id=row.id,
        project_id=row.project_id,
        purpose=row.purpose,
        filename=row.filename,
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def kept(now: datetime) -> Q:
    """Neither deleted nor expired."""
    return Q(deleted_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def visible(owner: Owner, now: datetime | None = None) -> "QuerySet[StoredFile]":
    """What the owner's project can see of its files, inside the tenant's scope."""
    return (
        StoredFile.objects.filter(
            kept(now or datetime.now(UTC)),
            organization_id=owner.organization_id,
            project_id=owner.project_id,
        )
        .exclude(purpose=STAGED)
        .order_by("-id")
    )


def missing(file_id: UUID) -> FileMissing:
    """The same for a file that is not there, deleted, expired, or somebody else's."""
    return FileMissing(f"No such File object: file-{file_id.hex}")
