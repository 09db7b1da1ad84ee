"""What is kept for a while, or handed out, or forgotten for good.

Answers under an idempotency key, prompts of those who ask for it, exports, erasures. Used inside
`tenants` only.
"""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.models.people import OrganizationRow
from tenants.scope import TenantModel


class IdempotentRequest(TenantModel):
    """A request under a key of its sender's: running while `status` is null, else answered.

    `claim` is the fencing value of the process that runs it; `answer_sealed` is null for an answer
    too large to keep.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    scope_id = models.UUIDField()
    endpoint = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    body_hash = models.BinaryField(max_length=32)
    claim = models.UUIDField()
    lease_expires_at = models.DateTimeField()
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=list)
    answer_sealed = models.BinaryField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_index=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_idempotent_request"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "scope_id", "endpoint", "key"],
                name="tenants_one_request_under_a_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.status or 'running'}"


class Exchange(TenantModel):
    """Prompt and answer of one request, sealed, for as long as the organization keeps them."""

    id = models.UUIDField(primary_key=True)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    project_id = models.UUIDField()
    prompt_sealed = models.BinaryField()
    answer_sealed = models.BinaryField()
    truncated = models.BooleanField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_index=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_exchange"

    def __str__(self) -> str:
        return f"exchange of {self.id}"


class ExportState(models.TextChoices):
    """A pending export is written by a task; a ready one is there until it expires."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class Export(TenantModel):
    """A ZIP of an organization's data, stored in parts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(
        max_length=16, choices=ExportState.choices, default=ExportState.PENDING
    )
    requested_by = models.UUIDField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    ready_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    size_bytes = models.BigIntegerField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_export"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "id"], name="tenants_export_with_tenant"
            ),
            models.UniqueConstraint(
                fields=["organization"],
                name="tenants_one_pending_export",
                condition=models.Q(state=ExportState.PENDING),
            ),
            models.CheckConstraint(
                name="tenants_export_state", condition=models.Q(state__in=ExportState.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.state} export"


class ExportPart(TenantModel):
    """A piece of an export's ZIP, so that no process holds it whole."""

    pk = models.CompositePrimaryKey("export", "number")
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    # The composite foreign key of sql/0005_retention.sql is this one's constraint, and cascades.
    export = models.ForeignKey(
        Export, models.DO_NOTHING, related_name="parts", db_constraint=False, db_index=False
    )
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta(TenantModel.Meta):
        db_table = "tenants_export_part"

    def __str__(self) -> str:
        return f"part {self.number}"


class Erasure(TenantModel):
    """The deletion of an organization: asked for, confirmed, done."""

    organization = models.OneToOneField(
        OrganizationRow, on_delete=models.PROTECT, related_name="+", primary_key=True
    )
    asked_by = models.UUIDField(null=True)
    asked_at = models.DateTimeField(db_default=Now())
    token_hash = models.BinaryField(max_length=32)
    token_expires_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True)
    erased_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_erasure"

    def __str__(self) -> str:
        return f"erasure of {self.organization_id}"
