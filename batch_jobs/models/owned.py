"""What files and jobs have in common: an id, and the tenant, project and key they belong to."""

from django.db import models
from uuid_utils.compat import uuid7

from tenants.facade import TenantModel


class OwnedModel(TenantModel):
    """Belongs to a project; `key` is the one that made it, and on whose behalf it runs."""

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

    class Meta(TenantModel.Meta):
        abstract = True

    def __str__(self) -> str:
        return str(self.id)
