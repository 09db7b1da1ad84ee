"""API keys: hashes of secrets, and what is known of them. Used inside `tenants` only."""

from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.models.people import OrganizationRow, Project
from tenants.scope import TenantModel


class ApiKey(TenantModel):
    """An API key: the hash of its secret, and what is shown of it afterwards."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    # The composite foreign key of sql/0001_protect.sql is this one's constraint.
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="keys", db_constraint=False
    )
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16)
    last4 = models.CharField(max_length=4)
    secret_hash = models.BinaryField(max_length=32)
    hash_scheme = models.CharField(max_length=16, default="sha256")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_api_key"
        constraints = [
            models.UniqueConstraint(
                fields=["hash_scheme", "secret_hash"], name="tenants_key_by_hash"
            ),
            models.UniqueConstraint(
                fields=["organization", "project", "id"], name="tenants_key_with_tenant"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}...{self.last4}"
