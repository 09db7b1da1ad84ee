"""Creating, reading and cancelling batches, always inside one tenant's scope.

Never reads a line of the input: that is validation's, on a worker. Called by the facade.
"""

from collections.abc import Mapping
from uuid import UUID

from batch_jobs.contracts import BulkJobInfo, Owner


def create_batch(
    owner: Owner,
    *,
    input_file_id: UUID,
    endpoint: str,
    metadata: Mapping[str, str] | None,
    output_expires_s: int | None,
) -> BulkJobInfo:
    """A batch that will be read, run and written by workers; raises FileMissing, InputInvalid."""
    raise NotImplementedError


def read_batch(owner: Owner, job_id: UUID) -> BulkJobInfo:
    """One batch of the project; raises JobNotFound, also for another project's."""
    raise NotImplementedError


def list_batches(owner: Owner, *, after: UUID | None, rows_max: int) -> list[BulkJobInfo]:
    """The project's batches, newest first; raises JobNotFound for an unknown `after`."""
    raise NotImplementedError


def cancel_batch(owner: Owner, job_id: UUID) -> BulkJobInfo:
    """Asks for the end of a batch; raises JobNotFound, JobStateWrong for one that has ended."""
    raise NotImplementedError
