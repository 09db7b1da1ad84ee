"""Jobs of a whole organization as people look at them: both kinds together, whosever project.

Only reads, within the tenant's scope, and looks at no more rows of a job than it says. What is done
with a job is done on behalf of its project, by the functions for keys. Called through the facade.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q
from django.utils import timezone

from batch_jobs.caps import ENDED
from batch_jobs.contracts import (
    FailedItem,
    FailureReport,
    JobNotFound,
    JobView,
    SampleDocument,
)
from batch_jobs.files import storage
from batch_jobs.job_info import job_info
from batch_jobs.models import BulkJob, JobKind, StoredFile, SummaryPlan
from batch_jobs.summaries.jobs import course_of, infos_of, recent_samples
from batch_jobs.summaries.progress import progress_of
from tenants.facade import tenant_scope

APP_ALIAS = "default"
ROWS_LOOKED_AT_MAX = 200_000
"""Of one job, in the order of its input."""
REASONS_MAX = 20
FAILURES_SHOWN_MAX = 20
SAMPLE_BYTES_MAX = 2_000
"""Of a document's text."""
_BY_INDEX = "SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off"
# Looks at a bounded part of the job by the index that begins with it: of millions of documents
# three may have failed, and to find those takes a walk through all.
_LOOKED_AT = """
    WITH looked_at AS MATERIALIZED (
        SELECT id, custom_id, state, error_code, error_message, line, input_number, request_id,
               source_id, source_offset, source_bytes
          FROM bulk_item
         WHERE organization_id = %(organization)s AND (job_id, id) > (%(job)s, 0)
           AND (job_id, id) <= (%(job)s, 9223372036854775807)
         ORDER BY job_id, id LIMIT %(rows_max)s
    ), failed AS (
        SELECT *, coalesce(error_code, state) AS code FROM looked_at
         WHERE custom_id IS NOT NULL AND state IN ('failed', 'cancelled', 'expired')
    )"""
_REASONS = f"""{_LOOKED_AT}
    SELECT code, count(*), (SELECT count(*) FROM looked_at) FROM failed
     GROUP BY code ORDER BY count(*) DESC, code LIMIT %(reasons_max)s"""  # noqa: S608 - our own text
_FIRST_FAILED = f"""{_LOOKED_AT}
    SELECT custom_id, line, input_number, code, coalesce(error_message, '') FROM failed
     LIMIT %(failures_max)s"""  # noqa: S608 - our own text
_SAMPLES = f"""{_LOOKED_AT}
    SELECT l.custom_id, f.storage_name, l.source_offset, l.source_bytes, i.answer
      FROM looked_at l JOIN bulk_file f ON f.id = l.source_id JOIN bulk_item i ON i.id = l.id
     WHERE l.custom_id IS NOT NULL AND l.state = 'done' AND l.request_id IS NOT NULL
       AND f.swept_at IS NULL
     LIMIT %(documents_max)s"""  # noqa: S608 - our own text


def list_jobs(
    organization_id: UUID,
    *,
    rows_max: int,
    after: UUID | None = None,
    project_id: UUID | None = None,
    kind: str | None = None,
    has_ended: bool | None = None,
) -> list[JobView]:
    """The organization's jobs behind `after`, newest first; those of a project, of a kind, that
    have ended or have not, where asked."""
    with tenant_scope(organization_id):
        rows = BulkJob.objects.get_queryset().filter(organization_id=organization_id)
        if project_id is not None:
            rows = rows.filter(project_id=project_id)
        if kind is not None:
            rows = rows.filter(kind=kind)
        if has_ended is not None:
            ended = Q(state__in=ENDED)
            rows = rows.filter(ended if has_ended else ~ended)
        if after is not None:
            rows = rows.filter(id__lt=after)
        return _views(list(rows.order_by("-id")[:rows_max]))


def find_job(organization_id: UUID, job_id: UUID) -> JobView:
    """One job of either kind; raises JobNotFound, also for another organization's."""
    with tenant_scope(organization_id):
        return _views([_found(organization_id, job_id)])[0]


def failures_of(organization_id: UUID, job_id: UUID) -> FailureReport:
    """Why items of a job have no answer, as far as their rows are kept; raises JobNotFound."""
    with tenant_scope(organization_id):
        row = _found(organization_id, job_id)
        names = _input_names(row)
        asked = {"reasons_max": REASONS_MAX, "failures_max": FAILURES_SHOWN_MAX}
        reasons = _asked(_REASONS, row, **asked)
        first = _asked(_FIRST_FAILED, row, **asked) if reasons else []
    return FailureReport(
        reasons=tuple((code, number) for code, number, _ in reasons),
        first=tuple(
            FailedItem(custom_id, line, names.get(number), code, message)
            for custom_id, line, number, code, message in first
        ),
        is_partial=bool(reasons) and reasons[0][2] >= ROWS_LOOKED_AT_MAX,
    )


def sample_documents(
    organization_id: UUID, job_id: UUID, documents_max: int
) -> list[SampleDocument]:
    """Whole documents of a job that were computed, each beside its summary.

    Raises JobNotFound, StorageAway.
    """
    with tenant_scope(organization_id):
        row = _found(organization_id, job_id)
        found = _asked(_SAMPLES, row, documents_max=documents_max)
    return [_sample(*values) for values in found]


def _sample(
    custom_id: str, storage_name: str, offset: int, size_bytes: int, answer: str
) -> SampleDocument:
    read_bytes = min(size_bytes, SAMPLE_BYTES_MAX)
    try:
        text = storage.read_range(storage_name, offset, read_bytes).decode(errors="ignore")
    except FileNotFoundError:
        text = ""
    return SampleDocument(custom_id, text, read_bytes < size_bytes, answer)


def _views(rows: Sequence[BulkJob]) -> list[JobView]:
    now = timezone.now()
    infos = infos_of([row for row in rows if row.kind == JobKind.SUMMARY])
    summaries = {info.job.job_id: info for info in infos}
    batches = [row for row in rows if row.id not in summaries]
    samples = recent_samples(batches, now)
    views = {info.job.job_id: JobView(info.job, info.progress, info) for info in infos}
    for row in batches:
        progress = progress_of(course_of(row, None), samples[row.id], now)
        views[row.id] = JobView(job_info(row), progress, None)
    return [views[row.id] for row in rows]


def _found(organization_id: UUID, job_id: UUID) -> BulkJob:
    row = BulkJob.objects.filter(organization_id=organization_id, id=job_id).first()
    if row is None:
        raise JobNotFound(f"no job {job_id}")
    return row


def _input_names(row: BulkJob) -> dict[int, str]:
    """The names of a summarisation's input files by their number."""
    if row.kind != JobKind.SUMMARY:
        return {}
    file_ids = SummaryPlan.objects.get(job_id=row.id).input_file_ids
    names = dict(StoredFile.objects.filter(id__in=file_ids).values_list("id", "filename"))
    return {number: names[one] for number, one in enumerate(file_ids) if one in names}


def _asked(query: str, row: BulkJob, **more: int) -> list[tuple[Any, ...]]:  # of any columns
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(_BY_INDEX)
        cursor.execute(
            query,
            {
                "organization": row.organization_id,
                "job": row.id,
                "rows_max": ROWS_LOOKED_AT_MAX,
                **more,
            },
        )
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
