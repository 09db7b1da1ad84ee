"""Jobs as their owners see them: from a row to a frozen value. Called by both kinds of jobs."""

from typing import Any

from batch_jobs.contracts import BulkJobInfo, LineError
from batch_jobs.models import BulkJob


def job_info(row: BulkJob, **more: Any) -> BulkJobInfo:
    """A job of either kind; `more` has what is not in its row, such as a summary's `options`."""
    return BulkJobInfo(
        job_id=row.id,
        organization_id=row.organization_id,
        project_id=row.project_id,
        key_id=row.key_id,
        kind=row.kind,
        state=row.state,
        endpoint=row.endpoint,
        model=row.model,
        metadata=row.metadata,
        input_file_id=row.input_file_id,
        output_file_id=row.output_file_id,
        error_file_id=row.error_file_id,
        errors=tuple(LineError(**error) for error in row.errors),
        items_total=row.items_total,
        items_completed=row.items_completed,
        items_failed=row.items_failed,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        completion_tokens=row.completion_tokens,
        charge_pico=row.charge_pico,
        budget_pico=row.budget_pico,
        pause_reason=row.pause_reason,
        created_at=row.created_at,
        in_progress_at=row.in_progress_at,
        finalizing_at=row.finalizing_at,
        completed_at=row.completed_at,
        failed_at=row.failed_at,
        expired_at=row.expired_at,
        cancelling_at=row.cancelling_at,
        cancelled_at=row.cancelled_at,
        paused_at=row.paused_at,
        expires_at=row.expires_at,
        deadline_at=row.deadline_at,
        output_expires_s=row.output_expires_s,
        **more,
    )
