"""A row in each table of bulk work, which agree with each other and were charged nothing."""

from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from batch_jobs.contracts import Owner
from batch_jobs.files.writing import write_file
from batch_jobs.models import BulkAttempt, BulkItem, BulkJob, ProgressSample, SummaryPlan
from tenants.facade import issue_key


def leave_bulk_work(organization_id: UUID, project_id: UUID) -> None:
    """A file, and a job over it that failed at its one document."""
    key = issue_key(organization_id, project_id, "bulk", using="housekeeper")
    owner = Owner(organization_id, project_id, key.key_id)
    file = write_file(owner, "user_data", "texts.jsonl", [b"a document"])
    job = BulkJob.objects.using("housekeeper").create(
        organization_id=organization_id,
        project_id=project_id,
        key_id=key.key_id,
        kind="summary",
        state="failed",
        endpoint="/v1/chat/completions",
        input_file_id=file.file_id,
        items_total=1,
        items_failed=1,
        failed_at=datetime.now(UTC),
    )
    SummaryPlan.objects.using("housekeeper").create(
        job=job, organization_id=organization_id, options={}, input_file_ids=[file.file_id]
    )
    ProgressSample.objects.using("housekeeper").create(
        job=job, organization_id=organization_id, bucket_at=datetime.now(UTC), items=1
    )
    item = BulkItem.objects.using("housekeeper").create(
        job=job,
        organization_id=organization_id,
        line=1,
        custom_id="a",
        source_id=file.file_id,
        source_bytes=10,
        state="failed",
        error_code="test",
        error_message="test",
        ended_at=datetime.now(UTC),
    )
    BulkAttempt.objects.using("housekeeper").create(
        request_id=uuid7(), organization_id=organization_id, item=item
    )
