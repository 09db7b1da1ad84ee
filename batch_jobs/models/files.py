"""Files of a project: what it uploaded, and what jobs wrote for it. Their bytes are in storage."""

from django.db import models
from django.db.models.functions import Now

from batch_jobs.models.owned import OwnedModel
from tenants.facade import TenantModel


class StoredFile(OwnedModel):
    """One file, whole and unchanging.

    `purpose` is OpenAI's word, or `staged` for what only jobs read and no list shows. A deleted or
    expired file is gone for its owner at once; a sweep removes the bytes, then the row.
    """

    purpose = models.CharField(max_length=32)
    filename = models.CharField(max_length=255)
    size_bytes = models.BigIntegerField()
    storage_name = models.CharField(max_length=255, unique=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    swept_at = models.DateTimeField(null=True)
    """Its bytes are gone since; a row stays as long as a job names it."""

    class Meta(TenantModel.Meta):
        db_table = "bulk_file"
        constraints = [
            models.UniqueConstraint(fields=["organization", "id"], name="bulk_file_of_its_tenant"),
        ]
        indexes = [
            models.Index(fields=["organization", "project", "-id"], name="bulk_file_list"),
            models.Index(
                fields=["expires_at"],
                name="bulk_file_expiring",
                condition=models.Q(expires_at__isnull=False, swept_at=None),
            ),
            models.Index(
                fields=["deleted_at"],
                name="bulk_file_deleted",
                condition=models.Q(deleted_at__isnull=False, swept_at=None),
            ),
        ]
