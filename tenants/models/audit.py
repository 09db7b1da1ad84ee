"""The audit log and its heads: written by SQL functions, read here. Used inside `tenants` only."""

from django.db import models

from tenants.models.people import OrganizationRow
from tenants.scope import TenantModel


class AuditHead(TenantModel):
    """The end of an organization's chain; its row is locked while an entry is added."""

    organization = models.OneToOneField(
        OrganizationRow, on_delete=models.PROTECT, primary_key=True, related_name="+"
    )
    sequence = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    class Meta(TenantModel.Meta):
        db_table = "tenants_audit_head"

    def __str__(self) -> str:
        return f"{self.organization_id} at {self.sequence}"


class AuditRow(TenantModel):
    """One thing that was done. Never changed, never deleted."""

    id = models.UUIDField(primary_key=True, editable=False)
    organization = models.ForeignKey(
        OrganizationRow, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    sequence = models.BigIntegerField()
    occurred_at = models.DateTimeField()
    actor_kind = models.CharField(max_length=16)
    actor_id = models.UUIDField(null=True)
    ip = models.CharField(max_length=45, blank=True)
    request_id = models.UUIDField(null=True)
    action = models.CharField(max_length=64)
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=128)
    details = models.JSONField(default=dict)
    previous_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)

    class Meta(TenantModel.Meta):
        db_table = "tenants_audit_log"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "sequence"], name="tenants_audit_in_order"
            ),
        ]
        indexes = [
            models.Index(
                fields=["organization", "target_id", "sequence"], name="tenants_audit_by_target"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.sequence}: {self.action}"
