"""API keys: hashes of secrets, and what is known of them. Used inside `tenants` only."""

from datetime import datetime
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.contracts import KeyKind
from tenants.models.people import (
    NAME_CHARS_MAX,
    OrganizationRow,
    Project,
    ServiceAccountRow,
)
from tenants.scope import TenantModel

MODEL_CHARS_MAX = 120
CIDR_CHARS_MAX = 43


class ApiKey(TenantModel):
    """An API key: the hash of its secret, and what is shown of it afterwards."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, default=KeyKind.PROJECT.value)
    # The composite foreign keys of sql/0001_protect.sql and 0002_people.sql constrain these two.
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="keys", db_constraint=False, null=True
    )
    service_account = models.ForeignKey(
        ServiceAccountRow,
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        null=True,
    )
    created_by = models.UUIDField(null=True)
    name = models.CharField(max_length=NAME_CHARS_MAX)
    prefix = models.CharField(max_length=16)
    last4 = models.CharField(max_length=4)
    secret_hash = models.BinaryField(max_length=32)
    hash_scheme = models.CharField(max_length=16, default="sha256")
    # Null is every scope, those of later versions included.
    scopes = ArrayField(models.CharField(max_length=32), null=True)
    permissions = ArrayField(models.CharField(max_length=32), default=list)
    allowed_models = ArrayField(models.CharField(max_length=MODEL_CHARS_MAX), null=True)
    cidrs = ArrayField(models.CharField(max_length=CIDR_CHARS_MAX), default=list)
    limits = models.JSONField(default=dict)
    end_user_limits = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoke_at = models.DateTimeField(null=True)
    replaced_by = models.UUIDField(null=True)
    # The first key of the line that rotations made; null for the first itself.
    line_id = models.UUIDField(null=True)
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
            models.CheckConstraint(
                name="tenants_key_kind",
                condition=models.Q(kind=KeyKind.PROJECT.value, project__isnull=False)
                | models.Q(
                    kind=KeyKind.ADMIN.value, project__isnull=True, service_account__isnull=True
                ),
            ),
        ]

    @property
    def line(self) -> UUID:
        """What the key's line of rotations is known by."""
        return self.line_id or self.id

    @property
    def ends_at(self) -> datetime | None:
        """Whichever comes first, its expiry or the end of its grace; None while neither is set."""
        ends = [end for end in (self.expires_at, self.revoke_at) if end is not None]
        return min(ends, default=None)

    def __str__(self) -> str:
        return f"{self.prefix}...{self.last4}"
