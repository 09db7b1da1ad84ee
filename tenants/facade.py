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
from tenants.event_kinds import event_kinds, register_event_kind
from tenants.keys import authenticate, issue_key, revoke_key, revoked_among
from tenants.mail import send_mail_later
from tenants.outbox import emit
from tenants.scope import TenantManager, TenantModel, TenantQuerySet, tenant_scope

__all__ = [
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "archive_project",
    "authenticate",
    "create_organization",
    "create_project",
    "emit",
    "event_kinds",
    "issue_key",
    "organization_by_slug",
    "register_event_kind",
    "revoke_key",
    "revoked_among",
    "send_mail_later",
    "tenant_scope",
]
