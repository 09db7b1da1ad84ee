"""Creating and reading summarisation jobs, always inside one tenant's scope.

Never computes anything: a new job's items wait in their table until a pump claims them. Called by
the facade.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from django.db import IntegrityError, transaction

from batch_jobs import models
from batch_jobs.contracts import InputInvalid, JobNotFound, SummaryItem, SummaryJob
from batch_jobs.tasks import wake_pump
from tenants.facade import tenant_scope

INSERT_ROWS_MAX = 500
READ_ROWS_MAX = 1000


def create_summary_job(
    organization_id: UUID,
    project_id: UUID,
    key_id: UUID,
    documents: Iterable[tuple[str, str]],
    *,
    model: str,
    documents_max: int,
) -> SummaryJob:
    """Queue one summary for each (custom id, text) of `documents`, and wake a pump.

    All or nothing: whatever iterating `documents` raises leaves no job behind. Raises InputInvalid
    for no documents, more than `documents_max`, or a custom id that occurs twice.
    """
    with tenant_scope(organization_id):
        job = models.SummaryJob.objects.create(
            organization_id=organization_id,
            project_id=project_id,
            key_id=key_id,
            model=model,
            items_total=0,
        )
        items_total = _insert_items(job, iter(documents), documents_max)
        if items_total == 0:
            raise InputInvalid("there are no documents to summarise")
        models.SummaryJob.objects.filter(id=job.id).update(items_total=items_total)
        # Robust: a job whose wake-up was lost is found by the periodic pump.
        transaction.on_commit(wake_pump, robust=True)
    return read_job(organization_id, job.id)


def read_job(organization_id: UUID, job_id: UUID) -> SummaryJob:
    """One job; raises JobNotFound, also for another tenant's."""
    with tenant_scope(organization_id):
        job = models.SummaryJob.objects.filter(id=job_id).first()
    if job is None:
        raise JobNotFound(f"no summarisation job {job_id}")
    if job.completed_at is not None:
        state = "completed"
    else:
        state = "queued" if job.started_at is None else "running"
    return SummaryJob(
        job_id=job.id,
        organization_id=job.organization_id,
        state=state,
        items_total=job.items_total,
        items_completed=job.items_done,
        items_failed=job.items_failed,
        charge_pico=job.charge_pico,
        created_at=job.created_at,
        completed_at=job.completed_at,
    )


def read_items(organization_id: UUID, job_id: UUID) -> Iterator[SummaryItem]:
    """A job's items in the order of its input, read a page at a time.

    Raises JobNotFound at the first item, also for another tenant's job.
    """
    read_job(organization_id, job_id)
    last_id = 0
    while True:
        with tenant_scope(organization_id):
            page = list(
                models.SummaryItem.objects.filter(job_id=job_id, id__gt=last_id)
                .defer("document")
                .order_by("id")[:READ_ROWS_MAX]
            )
        if not page:
            return
        last_id = page[-1].id
        for item in page:
            yield SummaryItem(
                custom_id=item.custom_id,
                state=item.state,
                summary=item.summary,
                error_code=item.error_code,
                error_message=item.error_message,
                prompt_tokens=item.prompt_tokens,
                cached_tokens=item.cached_tokens,
                completion_tokens=item.completion_tokens,
                charge_pico=item.charge_pico,
                request_id=item.request_id,
            )


def _insert_items(
    job: models.SummaryJob, documents: Iterator[tuple[str, str]], documents_max: int
) -> int:
    items_total = 0
    while page := list(islice(documents, INSERT_ROWS_MAX)):
        items_total += len(page)
        if items_total > documents_max:
            raise InputInvalid(f"more than {documents_max} documents")
        rows = [
            models.SummaryItem(
                organization_id=job.organization_id, job=job, custom_id=custom_id, document=text
            )
            for custom_id, text in page
        ]
        try:
            models.SummaryItem.objects.bulk_create(rows)
        except IntegrityError as error:
            if "summary_item_custom_id" not in str(error):
                raise
            raise InputInvalid("a custom id occurs twice") from error
    return items_total
