"""Removing what nobody can reach any more: expired and deleted files, and bytes without a row.

The bytes go first, then the row: a crash in between leaves a row whose bytes the next sweep finds
gone. A row that a job still names stays, without bytes. Called when jobs are tended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections

from batch_jobs.files import storage
from batch_jobs.files.reading import HOUSEKEEPER_ALIAS, close_stale_files
from batch_jobs.models import StoredFile

FOLDER_S = 60
"""One folder of the storage is looked through in each minute: all of them in some four hours."""

_DUE = """
    SELECT f.id, f.storage_name FROM bulk_file f
     WHERE f.swept_at IS NULL AND (f.deleted_at IS NOT NULL OR f.expires_at <= %(expired_by)s)
       AND NOT EXISTS (
            SELECT FROM bulk_job j LEFT JOIN bulk_summary_plan p ON p.job_id = j.id
             WHERE j.organization_id = f.organization_id
               AND j.state NOT IN ('completed', 'failed', 'expired', 'cancelled')
               AND f.deleted_at IS NULL
               AND (j.input_file_id = f.id OR f.id = ANY (p.input_file_ids)))
     LIMIT %(files_max)s"""
_FORGET = """
    DELETE FROM bulk_file f
     WHERE f.id = ANY (%(files)s)
       AND NOT EXISTS (SELECT FROM bulk_job j WHERE f.id = j.input_file_id)
       AND NOT EXISTS (SELECT FROM bulk_job j WHERE f.id = j.output_file_id)
       AND NOT EXISTS (SELECT FROM bulk_job j WHERE f.id = j.error_file_id)"""
_EMPTY = "UPDATE bulk_file SET swept_at = %(now)s WHERE id = ANY (%(files)s)"


@dataclass(frozen=True, slots=True)
class _Due:
    file_id: UUID
    storage_name: str


def sweep_files(now: datetime) -> int:
    """Removes the bytes, then the row, of some files; returns how many are gone. Idempotent."""
    close_stale_files()
    due = _due(now)
    _remove(due, now)
    return len(due) + _remove_orphans(now)


def forget_files(organization_id: UUID) -> None:
    """Removes all files of an organization that is being erased and has no jobs any more."""
    rows = StoredFile.objects.using(HOUSEKEEPER_ALIAS).filter(organization_id=organization_id)
    while page := list(rows.order_by("id")[: settings.FILES_SWEPT_MAX]):
        for row in page:
            storage.delete(row.storage_name)
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            # Django's own would look for each in the items of all tenants.
            cursor.execute(_FORGET, {"files": [row.id for row in page]})
            if not cursor.rowcount:
                raise RuntimeError(f"jobs of {organization_id} still name its files")


def _due(now: datetime) -> Sequence[_Due]:
    asked: dict[str, Any] = {
        "expired_by": now - timedelta(seconds=settings.FILE_SWEEP_GRACE_S),
        "files_max": settings.FILES_SWEPT_MAX,
    }
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_DUE, asked)
        return [_Due(*row) for row in cursor.fetchall()]


def _remove(due: Sequence[_Due], now: datetime) -> None:
    if not due:
        return
    for file in due:
        storage.delete(file.storage_name)
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        asked: dict[str, Any] = {"files": [file.file_id for file in due], "now": now}
        cursor.execute(_FORGET, asked)
        cursor.execute(_EMPTY, asked)


def _remove_orphans(now: datetime) -> int:
    """What a crash left between the bytes and their row, in the folder whose turn it is."""
    folder = storage.FOLDERS[int(now.timestamp() // FOLDER_S) % len(storage.FOLDERS)]
    names = storage.names_in(folder)
    rows = StoredFile.objects.using(HOUSEKEEPER_ALIAS)
    known = set(rows.filter(storage_name__in=names).values_list("storage_name", flat=True))
    oldest = now - timedelta(seconds=settings.ORPHAN_AGE_MIN_S)
    gone = 0
    for name in names:
        if name not in known and storage.stored_at(name) <= oldest:
            storage.delete(name)
            gone += 1
    return gone
