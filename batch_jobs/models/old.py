"""The two tables of bulk summarisation: jobs and their items, both under row-level security.

sql/0001_protect.sql holds the policies, the claim, and the composite foreign keys, which stand for
the keys to project, key and job here. No other package may import these models: `facade.py` hands
out frozen values, `items.py` makes the transitions.
"""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.facade import TenantModel

UNFINISHED = ("queued", "leased", "answered")


class SummaryJob(TenantModel):
    """A set of documents to summarise for one tenant; its totals change with its items' ends."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    project = models.ForeignKey(
        "tenants.Project",
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    key = models.ForeignKey(
        "tenants.ApiKey",
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    model = models.CharField(max_length=256)
    items_total = models.PositiveIntegerField()
    items_done = models.PositiveIntegerField(default=0)
    items_failed = models.PositiveIntegerField(default=0)
    charge_pico = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "summary_job"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="summary_job_organization_id_id"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    items_total__gte=models.F("items_done") + models.F("items_failed")
                ),
                name="summary_job_counts",
            ),
        ]
        indexes = [
            models.Index(
                fields=["organization"],
                name="summary_job_unfinished",
                condition=models.Q(completed_at=None),
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


class SummaryItem(TenantModel):
    """One document, its lease while a worker has it, and in the end its summary.

    `lease_token` is the fencing number: each claim raises it, and a write that carries an older one
    changes nothing. `request_id` is the hold's id of the latest attempt, `request_ids` of all.
    """

    class State(models.TextChoices):
        """queued -> leased -> answered (stored, not yet charged) -> done; or failed."""

        QUEUED = "queued"
        LEASED = "leased"
        ANSWERED = "answered"
        DONE = "done"
        FAILED = "failed"

    organization = models.ForeignKey(
        "tenants.OrganizationRow", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    job = models.ForeignKey(
        SummaryJob,
        on_delete=models.CASCADE,
        related_name="items",
        db_index=False,
        db_constraint=False,
    )
    custom_id = models.CharField(max_length=256)
    document = models.TextField(null=True)  # noqa: DJ001 - NULL once the item has ended
    state = models.CharField(max_length=8, choices=State, default=State.QUEUED)
    retry_at = models.DateTimeField(db_default=Now())
    lease_expires_at = models.DateTimeField(null=True)
    lease_token = models.BigIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    request_id = models.UUIDField(null=True, unique=True)
    request_ids = ArrayField(models.UUIDField(), default=list)
    summary = models.TextField(null=True)  # noqa: DJ001 - an empty answer is not "none yet"
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    charge_pico = models.BigIntegerField(default=0)
    error_code = models.CharField(max_length=64, null=True)  # noqa: DJ001 - NULL means no error
    error_message = models.TextField(null=True)  # noqa: DJ001 - NULL means no error
    ended_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "summary_item"
        constraints = [
            models.UniqueConstraint(fields=["job", "custom_id"], name="summary_item_custom_id"),
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "leased", "answered", "done", "failed"]),
                name="summary_item_state",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["leased", "answered"], lease_expires_at__isnull=False)
                | models.Q(state__in=["queued", "done", "failed"], lease_expires_at=None),
                name="summary_item_lease",
            ),
        ]
        indexes = [
            models.Index(
                fields=["organization", "id"],
                name="summary_item_unfinished",
                condition=models.Q(state__in=UNFINISHED),
            ),
            models.Index(fields=["job", "id"], name="summary_item_job"),
            GinIndex(fields=["request_ids"], name="summary_item_request_ids"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.custom_id}"
