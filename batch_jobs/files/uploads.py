"""Taking a file in for a project, within what its organization may store.

The bytes are stored before the row is written, and the room for them is counted with the row, one
upload of an organization after the other. Called through the facade with a file that has arrived.
"""

from datetime import UTC, datetime
from typing import BinaryIO
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import Count, Sum
from django.db.models.functions import Coalesce

from batch_jobs.contracts import FileInfo, Owner, StorageFull
from batch_jobs.files import storage
from batch_jobs.files.rows import STAGED, info_of, kept
from batch_jobs.files.writing import APP_ALIAS, add_row, size_of
from batch_jobs.models import StoredFile
from tenants.facade import tenant_scope


def store_upload(
    owner: Owner, purpose: str, filename: str, content: BinaryIO, expires_at: datetime | None
) -> FileInfo:
    """Keeps a file that was uploaded; raises StorageFull, and then keeps nothing."""
    size_bytes = size_of(content)
    check_room(owner.organization_id, size_bytes)
    name = storage.save(content)
    try:
        with tenant_scope(owner.organization_id):
            _wait_for_turn(owner.organization_id)
            _check_room(owner.organization_id, size_bytes)
            row = add_row(owner, purpose, filename, name, size_bytes, expires_at)
    except StorageFull:
        # After any other failure the row may be there all the same: a sweep finds out.
        storage.storage().delete(name)
        raise
    return info_of(row)


def check_room(organization_id: UUID, size_bytes: int) -> None:
    """Raises StorageFull for what would not fit now: before it is taken in for nothing."""
    with tenant_scope(organization_id):
        _check_room(organization_id, size_bytes)


def _wait_for_turn(organization_id: UUID) -> None:
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"bulk_file:{organization_id}"],
        )


def _check_room(organization_id: UUID, size_bytes: int) -> None:
    kept_now = StoredFile.objects.filter(
        kept(datetime.now(UTC)), organization_id=organization_id
    ).exclude(purpose=STAGED)
    taken = kept_now.aggregate(files=Count("id"), size_bytes=Coalesce(Sum("size_bytes"), 0))
    if taken["files"] >= settings.FILES_MAX:
        raise StorageFull(f"Your organization has {taken['files']} files, as many as it may have.")
    if taken["size_bytes"] + size_bytes > settings.STORAGE_BYTES_MAX:
        raise StorageFull(
            f"Your organization may store {settings.STORAGE_BYTES_MAX} bytes and stores"
            f" {taken['size_bytes']}; {size_bytes} more do not fit."
        )
