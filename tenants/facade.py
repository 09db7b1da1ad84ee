"""The door to `tenants`: everything other packages may call. Import nothing else but contracts.

Functions take and return frozen values; administrative ones take the database alias (`using`) of
the role that the calling process has.
"""

from tenants.accounts import (
    archive_project,
    create_organization,
    create_project,
    organization_by_slug,
)
from tenants.keys import authenticate, issue_key, revoke_key, revoked_among
from tenants.scope import TenantManager, TenantModel, TenantQuerySet, tenant_scope

__all__ = [
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "archive_project",
    "authenticate",
    "create_organization",
    "create_project",
    "issue_key",
    "organization_by_slug",
    "revoke_key",
    "revoked_among",
    "tenant_scope",
]
