"""Creating, reading and cancelling batches, always inside one tenant's scope.

Never reads a line of the input: that is validation's, on a worker. Called by the facade.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from batch_jobs.caps import check_jobs
from batch_jobs.contracts import (
    BulkJobInfo,
    InputInvalid,
    JobNotFound,
    JobStateWrong,
    LineError,
    Owner,
    TooMuchEnqueued,
)
from batch_jobs.events import tell
from batch_jobs.files.reading import lock_input
from batch_jobs.job_info import job_info
from batch_jobs.models import BulkJob, JobKind, JobState
from batch_jobs.waking import wake_tending_later
from tenants.facade import TenantQuerySet, tenant_scope

APP_ALIAS = "default"
INPUT_PURPOSE = "batch"
CANCELLED_ALREADY = (JobState.CANCELLING, JobState.CANCELLED)
CAN_BE_CANCELLED = (JobState.VALIDATING, JobState.IN_PROGRESS, JobState.PAUSED)


def create_batch(
    owner: Owner,
    *,
    input_file_id: UUID,
    endpoint: str,
    metadata: Mapping[str, str],
    output_expires_s: int | None,
) -> BulkJobInfo:
    """A batch that workers will read, run and write; it has failed already where the organization
    has too many unfinished jobs.

    Raises FileMissing for no file of the project, InputInvalid for one of another purpose.
    """
    with tenant_scope(owner.organization_id):
        if lock_input(owner, input_file_id).purpose != INPUT_PURPOSE:
            raise InputInvalid("input_file_id: its purpose must be 'batch'.")
        row = BulkJob(
            organization_id=owner.organization_id,
            project_id=owner.project_id,
            key_id=owner.key_id,
            kind=JobKind.BATCH,
            endpoint=endpoint,
            metadata=dict(metadata),
            input_file_id=input_file_id,
            output_expires_s=output_expires_s,
            created_at=(now := timezone.now()),
            expires_at=now + timedelta(seconds=settings.BATCH_WINDOW_S),
        )
        try:
            check_jobs(owner.organization_id, APP_ALIAS)
        except TooMuchEnqueued as error:
            row.state = JobState.FAILED
            row.failed_at = now
            row.errors = [asdict(LineError(error.code, str(error)))]
        row.save(force_insert=True)
        if row.state == JobState.FAILED:
            tell(row, "failed", now, APP_ALIAS)
        else:
            wake_tending_later(APP_ALIAS)
        return job_info(row)


def read_batch(owner: Owner, job_id: UUID) -> BulkJobInfo:
    """One batch of the project; raises JobNotFound, also for another project's."""
    with tenant_scope(owner.organization_id):
        return job_info(_found(_of_project(owner), job_id))


def list_batches(
    owner: Owner, *, after: UUID | None, rows_max: int, ascending: bool = False
) -> list[BulkJobInfo]:
    """The project's batches behind `after`, newest first unless `ascending`."""
    with tenant_scope(owner.organization_id):
        rows = _of_project(owner).order_by("id" if ascending else "-id")
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        return [job_info(row) for row in rows[:rows_max]]


def cancel_batch(owner: Owner, job_id: UUID) -> BulkJobInfo:
    """Asks for the end of a batch, once: a repetition changes nothing.

    Raises JobNotFound, and JobStateWrong for one that has come to another end.
    """
    with tenant_scope(owner.organization_id):
        rows = _of_project(owner)
        rows.filter(id=job_id, state__in=CAN_BE_CANCELLED).update(
            state=JobState.CANCELLING, cancelling_at=Now()
        )
        row = _found(rows, job_id)
        if row.state not in CANCELLED_ALREADY:
            raise JobStateWrong(f"Cannot cancel a batch with status '{row.state}'.")
        wake_tending_later(APP_ALIAS)
        return job_info(row)


def _of_project(owner: Owner) -> TenantQuerySet[BulkJob]:
    return BulkJob.objects.get_queryset().filter(project_id=owner.project_id, kind=JobKind.BATCH)


def _found(rows: TenantQuerySet[BulkJob], job_id: UUID) -> BulkJob:
    row = rows.filter(id=job_id).first()
    if row is None:
        raise JobNotFound(f"no batch {job_id}")
    return row
