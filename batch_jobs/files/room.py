"""What an organization's files take of what it may store: uploads, outputs, and texts of its jobs.

Counted anew whenever it is asked, so that no count can go wrong: a few milliseconds for ten
thousand files. Files that jobs are still writing, or never published, count for nothing. Called by
uploads and by ingestion; whoever adds to it takes the organization's turn first.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce

from batch_jobs.contracts import StorageFull
from batch_jobs.files.rows import STAGED, kept
from batch_jobs.models import StoredFile


@dataclass(frozen=True, slots=True)
class _Taken:
    files: int
    """Those that their owner sees, and can delete."""
    size_bytes: int
    staged_bytes: int
    """Of these, the texts that jobs have staged."""


def take_turn(organization_id: UUID, using: str) -> None:
    """Until the transaction ends nobody else adds to what the organization stores."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"bulk_file:{organization_id}"],
        )


def check_file(organization_id: UUID, size_bytes: int, using: str) -> None:
    """Room for one more file of so many bytes; raises StorageFull."""
    taken = _taken(organization_id, using)
    if taken.files >= settings.FILES_MAX:
        raise StorageFull(f"Your organization has {taken.files} files, as many as it may have.")
    _check_bytes(taken, size_bytes)


def check_bytes(organization_id: UUID, using: str) -> None:
    """That what is stored by now, in this transaction too, is not too much; raises StorageFull."""
    _check_bytes(_taken(organization_id, using), 0)


def _check_bytes(taken: _Taken, more_bytes: int) -> None:
    if taken.size_bytes + more_bytes > settings.STORAGE_BYTES_MAX:
        more = f"; {more_bytes} more do not fit" if more_bytes else ""
        raise StorageFull(
            f"Your organization may store {settings.STORAGE_BYTES_MAX} bytes and stores"
            f" {taken.size_bytes}, {taken.staged_bytes} of them texts of its summarisation"
            f" jobs{more}. Delete files, or the results of jobs that have ended."
        )


def _taken(organization_id: UUID, using: str) -> _Taken:
    staged = Q(purpose=STAGED)
    files = StoredFile.objects.using(using).filter(
        kept(datetime.now(UTC)), ~staged | Q(expires_at=None), organization_id=organization_id
    )
    sums = files.aggregate(
        seen=Count("id", filter=~staged),
        all_bytes=Coalesce(Sum("size_bytes"), 0),
        staged_bytes=Coalesce(Sum("size_bytes", filter=staged), 0),
    )
    return _Taken(sums["seen"], sums["all_bytes"], sums["staged_bytes"])
