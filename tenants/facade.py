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
from tenants.webhooks.endpoints import (
    change_webhook_endpoint,
    create_webhook_endpoint,
    delete_webhook_endpoint,
    rotate_webhook_secret,
    webhook_endpoint,
    webhook_endpoints,
)
from tenants.webhooks.log import (
    replay_webhook_delivery,
    send_test_event,
    webhook_deliveries,
    webhook_delivery,
)

__all__ = [
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "archive_project",
    "authenticate",
    "change_webhook_endpoint",
    "create_organization",
    "create_project",
    "create_webhook_endpoint",
    "delete_webhook_endpoint",
    "emit",
    "event_kinds",
    "issue_key",
    "organization_by_slug",
    "register_event_kind",
    "replay_webhook_delivery",
    "revoke_key",
    "revoked_among",
    "rotate_webhook_secret",
    "send_mail_later",
    "send_test_event",
    "tenant_scope",
    "webhook_deliveries",
    "webhook_delivery",
    "webhook_endpoint",
    "webhook_endpoints",
]
