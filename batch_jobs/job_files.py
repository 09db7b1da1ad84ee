"""Files that a job writes for its owner: staged first, published with the job's change of state.

A staged file is in no list and expires by itself. So a writer that dies in between leaves nothing
that anybody sees, the next one writes anew, and a job never has two outputs. Called by batches.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import chain
from uuid import UUID

from django.conf import settings

from batch_jobs.contracts import FileMissing
from batch_jobs.files.writing import write_file
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob
from batch_jobs.models import BulkJob, StoredFile

STAGED = "staged"
PUBLISHED = "batch_output"


def stage_file(job: LeasedJob, filename: str, parts: Iterable[bytes], now: datetime) -> UUID | None:
    """Writes a file that nobody sees yet; None, and no file, where there is nothing to write."""
    pieces = iter(parts)
    first = next(pieces, None)
    if first is None:
        return None
    expires_at = now + timedelta(seconds=settings.BATCH_STAGED_S)
    return write_file(
        job.owner, STAGED, filename, chain([first], pieces), expires_at=expires_at
    ).file_id


def publish_file(row: BulkJob, file_id: UUID | None, now: datetime) -> UUID | None:
    """Makes a staged file its owner's, in the transaction that names it in the job's `row`.

    Raises FileMissing when it took so long that the file has expired.
    """
    if file_id is None:
        return None
    seconds = row.output_expires_s
    staged = StoredFile.objects.using(HOUSEKEEPER_ALIAS).filter(
        organization_id=row.organization_id, id=file_id, purpose=STAGED, deleted_at=None
    )
    expires_at = None if seconds is None else now + timedelta(seconds=seconds)
    if not staged.update(purpose=PUBLISHED, expires_at=expires_at):
        raise FileMissing(f"staged file {file_id} is gone")
    return file_id
