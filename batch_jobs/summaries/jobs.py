"""Creating and reading summarisation jobs, always inside one tenant's scope.

Never reads a document: that is ingestion's, on a worker. Called by the facade and by `steering`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from batch_jobs.caps import check_jobs, check_tokens
from batch_jobs.contracts import (
    InputInvalid,
    JobNotFound,
    ModelUnknown,
    Owner,
    Progress,
    SummaryInfo,
)
from batch_jobs.files.rows import missing, visible
from batch_jobs.job_info import job_info
from batch_jobs.models import BulkJob, JobKind, JobState, ProgressSample, SummaryPlan
from batch_jobs.ports import pipeline_port
from batch_jobs.summaries.asking import request_body
from batch_jobs.summaries.options import SummaryOptions, parse_options
from batch_jobs.summaries.progress import Course, Sample, progress_of, window_start
from batch_jobs.waking import wake_tending_later
from tenants.facade import TenantQuerySet, tenant_scope

APP_ALIAS = "default"
ENDPOINT = "/v1/chat/completions"
DEADLINE_BEFORE = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SummaryOrder:
    """What a job is asked to do. `options` as `options.parse_options` reads them."""

    input_file_ids: Sequence[UUID]
    options: Mapping[str, Any]  # JSON
    budget_pico: int | None = None
    deadline_at: datetime | None = None
    starts_itself: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)


def create_summary(owner: Owner, order: SummaryOrder) -> SummaryInfo:
    """A job whose documents workers will read, and run unless it is to wait.

    Raises InputInvalid, FileMissing, ModelUnknown, TooMuchEnqueued.
    """
    now = timezone.now()
    options = parse_options(order.options)
    check_budget(order.budget_pico)
    check_deadline(order.deadline_at, now)
    _check_options(owner, options)
    with tenant_scope(owner.organization_id):
        _check_files(owner, order.input_file_ids, now)
        check_jobs(owner.organization_id, APP_ALIAS)
        row = BulkJob(
            organization_id=owner.organization_id,
            project_id=owner.project_id,
            key_id=owner.key_id,
            kind=JobKind.SUMMARY,
            endpoint=ENDPOINT,
            model=options.model,
            metadata=dict(order.metadata),
            budget_pico=order.budget_pico,
            deadline_at=order.deadline_at,
            created_at=now,
            retry_at=now,
            expires_at=now + timedelta(days=settings.SUMMARY_JOB_DAYS_MAX),
        )
        # None of it is known yet: only what others have waiting can be too much.
        check_tokens(owner.organization_id, row.id, options.model, 0, APP_ALIAS)
        row.save(force_insert=True)
        plan = SummaryPlan.objects.create(
            job=row,
            organization_id=owner.organization_id,
            options=options.to_json(),
            input_file_ids=list(order.input_file_ids),
            starts_itself=order.starts_itself,
        )
        wake_tending_later(APP_ALIAS)
        return _info(row, plan, [], now)


def read_summary(owner: Owner, job_id: UUID) -> SummaryInfo:
    """One job of the project; raises JobNotFound, also for another project's."""
    with tenant_scope(owner.organization_id):
        return info_of(found(of_project(owner), job_id))


def list_summaries(
    owner: Owner, *, rows_max: int, after: UUID | None = None, ascending: bool = False
) -> list[SummaryInfo]:
    """The project's jobs behind `after`, newest first unless `ascending`."""
    with tenant_scope(owner.organization_id):
        rows = of_project(owner).order_by("id" if ascending else "-id")
        if after is not None:
            rows = rows.filter(**{"id__gt" if ascending else "id__lt": after})
        return infos_of(list(rows[:rows_max]))


def of_project(owner: Owner) -> TenantQuerySet[BulkJob]:
    """The summarisation jobs of a project, inside its tenant's scope."""
    return BulkJob.objects.get_queryset().filter(
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        kind=JobKind.SUMMARY,
    )


def found(rows: TenantQuerySet[BulkJob], job_id: UUID) -> BulkJob:
    """The job of this id among `rows`; raises JobNotFound."""
    row = rows.filter(id=job_id).first()
    if row is None:
        raise JobNotFound(f"no summarisation job {job_id}")
    return row


def info_of(row: BulkJob) -> SummaryInfo:
    """One job as a frozen value, inside its tenant's scope."""
    return infos_of([row])[0]


def infos_of(rows: Sequence[BulkJob]) -> list[SummaryInfo]:
    """Jobs as frozen values, inside their tenant's scope."""
    now = timezone.now()
    plans = SummaryPlan.objects.get_queryset().in_bulk([row.id for row in rows])
    samples = recent_samples(rows, now)
    return [_info(row, plans[row.id], samples[row.id], now) for row in rows]


def recent_samples(rows: Sequence[BulkJob], now: datetime) -> dict[UUID, list[Sample]]:
    """What ended lately of each job, inside their tenant's scope; of those that run."""
    samples: dict[UUID, list[Sample]] = {row.id: [] for row in rows}
    running = [row.id for row in rows if row.state == JobState.IN_PROGRESS]
    recent = ProgressSample.objects.filter(job_id__in=running, bucket_at__gte=window_start(now))
    for one in recent.order_by("bucket_at") if running else ():
        samples[one.job_id].append(sample_of(one))
    return samples


def sample_of(row: ProgressSample) -> Sample:
    """A sample as `progress` counts it."""
    return Sample(row.bucket_at, row.items, row.prompt_tokens + row.completion_tokens)


def course_of(row: BulkJob, plan: SummaryPlan | None) -> Course:
    """How far a job has come; a batch has no plan, and the estimate of its validation."""
    estimated = plan.estimate.get("prompt_tokens") if plan else row.enqueued_tokens or None
    return Course(
        runs=row.state == JobState.IN_PROGRESS and row.claims_left is None,
        since=row.in_progress_at,
        documents_left=row.items_total - row.items_completed - row.items_failed,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        prompt_tokens_estimated=estimated,
    )


def check_budget(budget_pico: int | None) -> None:
    """Raises InputInvalid for a budget that buys nothing."""
    if budget_pico is not None and not 0 < budget_pico < 2**63:
        raise InputInvalid("budget: must be more than 0, and an amount that can be paid")


def check_deadline(deadline_at: datetime | None, now: datetime) -> None:
    """Raises InputInvalid for a deadline that is over, or that no time zone can tell."""
    if deadline_at is None:
        return
    if deadline_at <= now:
        raise InputInvalid("deadline_at: must be in the future")
    if deadline_at >= DEADLINE_BEFORE:
        raise InputInvalid(f"deadline_at: must be before the year {DEADLINE_BEFORE.year}")


def _info(row: BulkJob, plan: SummaryPlan, samples: Sequence[Sample], now: datetime) -> SummaryInfo:
    progress: Progress = progress_of(course_of(row, plan), samples, now)
    has_results = row.results_deleted_at is None
    return SummaryInfo(
        job=job_info(row, options=plan.options),
        input_file_ids=tuple(plan.input_file_ids),
        starts_itself=plan.starts_itself,
        documents_duplicate=plan.documents_duplicate,
        documents_known=plan.documents_known,
        estimate=plan.estimate,
        previewing=row.claims_left is not None
        and row.state in (JobState.IN_PROGRESS, JobState.PAUSED),
        results_deleted_at=row.results_deleted_at,
        results_shards=-(-row.items_total // settings.RESULTS_SHARD_ROWS) if has_results else 0,
        progress=progress,
    )


def _check_options(owner: Owner, options: SummaryOptions) -> None:
    """What every document would fail with is said at once."""
    terms = pipeline_port().terms(owner.organization_id, owner.project_id, options.model)
    if terms is None:
        raise ModelUnknown(options.model)
    if options.tokens_max > terms.output_tokens_max:
        raise InputInvalid(
            f"tokens_max: {options.model} answers with at most {terms.output_tokens_max} tokens"
        )
    if options.schema is not None:
        asked = request_body(options, "text", merging=False)
        if (refusal := pipeline_port().refusal(ENDPOINT, asked)) is not None:
            raise InputInvalid(f"schema: {refusal}")


def _check_files(owner: Owner, file_ids: Sequence[UUID], now: datetime) -> None:
    files_max = settings.SUMMARY_INPUT_FILES_MAX
    if not 1 <= len(file_ids) <= files_max:
        raise InputInvalid(f"input_file_ids: must name 1 to {files_max} files")
    if len(set(file_ids)) < len(file_ids):
        raise InputInvalid("input_file_ids: names a file twice")
    there = set(visible(owner, now).filter(id__in=file_ids).values_list("id", flat=True))
    for file_id in file_ids:
        if file_id not in there:
            raise missing(file_id)
