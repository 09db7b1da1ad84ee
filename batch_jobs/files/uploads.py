"""Taking a file in for a project, within what its organization may store.

The bytes are stored before the row is written, and the room for them is counted with the row, one
upload of an organization after the other. Called through the facade with a file that has arrived.
"""

from datetime import datetime
from typing import BinaryIO
from uuid import UUID

from batch_jobs.contracts import FileInfo, Owner, StorageFull
from batch_jobs.files import room, storage
from batch_jobs.files.rows import info_of
from batch_jobs.files.writing import APP_ALIAS, add_row, size_of
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
            room.take_turn(owner.organization_id, APP_ALIAS)
            room.check_file(owner.organization_id, size_bytes, APP_ALIAS)
            row = add_row(owner, purpose, filename, name, size_bytes, expires_at)
    except StorageFull:
        # After any other failure the row may be there all the same: a sweep finds out.
        storage.delete(name)
        raise
    return info_of(row)


def check_room(organization_id: UUID, size_bytes: int) -> None:
    """Raises StorageFull for what would not fit now: before it is taken in for nothing."""
    with tenant_scope(organization_id):
        room.check_file(organization_id, size_bytes, APP_ALIAS)
