"""Jobs: a batch of requests as OpenAI has them, or the summaries of many documents.

Both run by one pump and end by one set of rules; what only summaries need is in their plan.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from batch_jobs.models.files import StoredFile
from batch_jobs.models.owned import OwnedModel
from tenants.facade import TenantModel


class JobKind(models.TextChoices):
    """What a job is to its owner."""

    BATCH = "batch"
    SUMMARY = "summary"


class JobState(models.TextChoices):
    """validating -> (ready ->) in_progress <-> paused -> finalizing -> completed or expired;
    validating <-> paused, for its key; validating -> failed; anything unfinished -> cancelling ->
    finalizing -> cancelled.

    A batch is never ready (it starts by itself) or paused by its owner.
    """

    VALIDATING = "validating"
    READY = "ready"
    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class BulkJob(OwnedModel):
    """One job; its totals move with its items' ends, in the same transaction.

    `items_total` counts what its owner sees: lines or documents, not the parts of a long document.
    `expired_at` or `cancelling_at` while finalizing tell what it will be. `tend_token` is the
    fencing number of who validates or finalizes it, `cursor` how far that has come.
    """

    kind = models.CharField(max_length=8, choices=JobKind)
    state = models.CharField(max_length=12, choices=JobState, default=JobState.VALIDATING)
    endpoint = models.CharField(max_length=64)
    model = models.CharField(max_length=256, default="")
    metadata = models.JSONField(default=dict)
    input_file = models.ForeignKey(
        StoredFile, on_delete=models.PROTECT, related_name="+", null=True, db_constraint=False
    )
    output_file = models.ForeignKey(
        StoredFile, on_delete=models.PROTECT, related_name="+", null=True, db_constraint=False
    )
    error_file = models.ForeignKey(
        StoredFile, on_delete=models.PROTECT, related_name="+", null=True, db_constraint=False
    )
    output_expires_s = models.PositiveIntegerField(null=True)
    errors = models.JSONField(default=list)

    items_total = models.PositiveIntegerField(default=0)
    items_completed = models.PositiveIntegerField(default=0)
    items_failed = models.PositiveIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    charge_pico = models.BigIntegerField(default=0)
    budget_pico = models.BigIntegerField(null=True)
    enqueued_tokens = models.BigIntegerField(default=0)
    """Prompt tokens of the whole job, as estimated when it was read; for the tenant's cap."""

    retry_at = models.DateTimeField(db_default=Now())
    """Nothing of it is claimed before: set back when what failed would fail for all its items."""
    claims_left = models.PositiveIntegerField(null=True)
    """How many more items may be claimed, for a preview; null is all."""
    pause_reason = models.CharField(max_length=32, default="")
    tend_token = models.BigIntegerField(default=0)
    tended_until = models.DateTimeField(null=True)
    cursor = models.JSONField(default=dict)

    created_at = models.DateTimeField(db_default=Now())
    in_progress_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    expired_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    results_deleted_at = models.DateTimeField(null=True)
    """Its items and their texts are gone since; the totals stay."""

    class Meta(TenantModel.Meta):
        db_table = "bulk_job"
        constraints = [
            models.UniqueConstraint(fields=["organization", "id"], name="bulk_job_of_its_tenant"),
            models.CheckConstraint(
                condition=models.Q(
                    items_total__gte=models.F("items_completed") + models.F("items_failed")
                ),
                name="bulk_job_counts",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=JobState.values), name="bulk_job_state"
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=JobKind.values), name="bulk_job_kind"
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "project", "kind", "-id"], name="bulk_job_list"),
            models.Index(
                fields=["organization"],
                name="bulk_job_running",
                condition=models.Q(state="in_progress"),
            ),
            models.Index(
                fields=["state", "tended_until"],
                name="bulk_job_unfinished",
                condition=~models.Q(state__in=["completed", "failed", "expired", "cancelled"]),
            ),
        ]


class SummaryPlan(TenantModel):
    """What only a summarisation job has: its options, its inputs, and what was made of them."""

    job = models.OneToOneField(
        BulkJob, primary_key=True, on_delete=models.CASCADE, related_name="plan"
    )
    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    options = models.JSONField()
    input_file_ids = ArrayField(models.UUIDField())
    starts_itself = models.BooleanField(default=True)
    bytes_read = models.BigIntegerField(default=0)
    documents_duplicate = models.PositiveIntegerField(default=0)
    """Computed once with another one of this job."""
    documents_known = models.PositiveIntegerField(default=0)
    """Unchanged since an earlier job of the project that had the same options: not computed."""
    estimate = models.JSONField(default=dict)
    warned_at = models.DateTimeField(null=True)
    """When its owner was told that the deadline is in danger."""

    class Meta(TenantModel.Meta):
        db_table = "bulk_summary_plan"

    def __str__(self) -> str:
        return str(self.job_id)


class ProgressSample(TenantModel):
    """What ended of a job within ten seconds: for throughput and for an honest remaining time."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    job = models.ForeignKey(
        BulkJob, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    bucket_at = models.DateTimeField()
    items = models.PositiveIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    charge_pico = models.BigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        db_table = "bulk_progress"
        constraints = [
            models.UniqueConstraint(fields=["job", "bucket_at"], name="bulk_progress_bucket"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} at {self.bucket_at}"
