"""Items: one line of a batch, or one document of a summarisation and each part of a long one.

An item holds no text to compute on: `source`, `source_offset` and `source_bytes` say where that
lies. `sql/0004_pump.sql` holds the claim and the transitions.
"""

from datetime import UTC, datetime

from django.db import models
from uuid_utils.compat import uuid7

from batch_jobs.models.files import StoredFile
from batch_jobs.models.jobs import BulkJob
from tenants.facade import TenantModel

FRESH_AT = datetime(2000, 1, 1, tzinfo=UTC)
"""When an item that was never tried may be: before any that was, all of them alike."""


class ItemState(models.TextChoices):
    """(waiting ->) queued -> leased -> answered (stored, not yet charged) -> done.

    waiting: for its parts' summaries, or for the item it is the same as. Other ends: failed,
    cancelled (its job was) and expired (its job's time was over); nothing is charged for those.
    """

    WAITING = "waiting"
    QUEUED = "queued"
    LEASED = "leased"
    ANSWERED = "answered"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class BulkItem(TenantModel):
    """One request to compute, its lease while a worker has it, and in the end its answer.

    `lease_token` is the fencing number: each claim raises it, and a write with an older one changes
    nothing. Items are claimed in the order of `retry_at`, then `place`, which keeps those together
    that begin with the same text.

    A document longer than the context is a tree: its root, which has the custom id and is what the
    owner sees, waits for `parts_left` children; their answers are its text. `same_as` names the
    item whose answer this one shares; `copies` is how many share this one's.
    """

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    job = models.ForeignKey(
        BulkJob,
        on_delete=models.CASCADE,
        related_name="items",
        db_index=False,
        db_constraint=False,
    )
    line = models.PositiveIntegerField()
    """Of the input, from 1; of the document, for its parts."""
    input_number = models.PositiveSmallIntegerField(default=0, db_default=0)
    """Which of its job's input files the document came in, from 0."""
    custom_id = models.CharField(max_length=512, null=True)  # noqa: DJ001 - NULL is a part
    place = models.BigIntegerField(default=0)
    source = models.ForeignKey(
        StoredFile,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        db_index=False,
        db_constraint=False,
    )
    source_offset = models.BigIntegerField(default=0)
    source_bytes = models.PositiveIntegerField(default=0)
    digest = models.BinaryField(max_length=32, null=True)
    """Of a whole document and the options it is summarised with."""
    parent_id = models.BigIntegerField(null=True)
    part = models.PositiveIntegerField(default=0)
    """Its turn among its parent's children, from 0."""
    parts_left = models.PositiveIntegerField(default=0)
    same_as_id = models.BigIntegerField(null=True)
    copies = models.PositiveIntegerField(default=0)
    bound_pico = models.BigIntegerField(default=0)
    """The most it can be charged, for jobs that have a budget."""

    state = models.CharField(max_length=9, choices=ItemState, default=ItemState.QUEUED)
    retry_at = models.DateTimeField(default=FRESH_AT)
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.BigIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    request_id = models.UUIDField(null=True)
    """The hold's id of the latest attempt; bulk_attempt has all."""

    status_code = models.PositiveSmallIntegerField(null=True)
    answer = models.TextField(null=True)  # noqa: DJ001 - an empty answer is not "none yet"
    """A line's response body, as JSON; a document's summary, as text."""
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    charge_pico = models.BigIntegerField(default=0)
    error_code = models.CharField(max_length=64, null=True)  # noqa: DJ001 - NULL means no error
    error_message = models.TextField(null=True)  # noqa: DJ001 - NULL means no error
    ended_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "bulk_item"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "custom_id"],
                name="bulk_item_custom_id",
                condition=models.Q(custom_id__isnull=False),
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=ItemState.values), name="bulk_item_state"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["leased", "answered"], lease_expires_at__isnull=False)
                | (~models.Q(state__in=["leased", "answered"]) & models.Q(lease_expires_at=None)),
                name="bulk_item_lease",
            ),
        ]
        indexes = [
            models.Index(fields=["job", "id"], name="bulk_item_job"),
            models.Index(
                fields=["job", "retry_at", "place", "id"],
                name="bulk_item_queued",
                condition=models.Q(state="queued"),
            ),
            models.Index(
                fields=["lease_expires_at"],
                name="bulk_item_leased",
                condition=models.Q(state__in=["leased", "answered"]),
            ),
            models.Index(
                fields=["parent_id"],
                name="bulk_item_parent",
                condition=models.Q(parent_id__isnull=False),
            ),
            models.Index(
                fields=["same_as_id", "id"],
                name="bulk_item_copies",
                condition=models.Q(same_as_id__isnull=False, state="waiting"),
            ),
            models.Index(
                fields=["organization", "digest"],
                name="bulk_item_digest",
                condition=models.Q(digest__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.custom_id}"


class BulkAttempt(TenantModel):
    """An attempt at an item: its request's id is the hold's, stored before anything is held."""

    request_id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    item = models.ForeignKey(
        BulkItem, on_delete=models.CASCADE, related_name="attempt_rows", db_constraint=False
    )

    class Meta(TenantModel.Meta):
        db_table = "bulk_attempt"

    def __str__(self) -> str:
        return str(self.request_id)
