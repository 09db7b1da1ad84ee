"""The tables of tenants: people, keys, audit, events and webhooks.

Every table with an `organization_id` is under row-level security (sql/), and the composite foreign
keys there keep a project's key inside its organization. Used inside `tenants` only; others see
`tenants.contracts`.
"""

from tenants.models.audit import AuditHead, AuditRow
from tenants.models.keys import ApiKey
from tenants.models.outbox import (
    DeliveryState,
    Mail,
    OutboxEvent,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from tenants.models.people import (
    InvitationRow,
    Membership,
    OrganizationRow,
    Project,
    ServiceAccountRow,
    User,
)
from tenants.models.retention import (
    Erasure,
    Exchange,
    Export,
    ExportPart,
    ExportState,
    IdempotentRequest,
)

__all__ = [
    "ApiKey",
    "AuditHead",
    "AuditRow",
    "DeliveryState",
    "Erasure",
    "Exchange",
    "Export",
    "ExportPart",
    "ExportState",
    "IdempotentRequest",
    "InvitationRow",
    "Mail",
    "Membership",
    "OrganizationRow",
    "OutboxEvent",
    "Project",
    "ServiceAccountRow",
    "User",
    "WebhookAttempt",
    "WebhookDelivery",
    "WebhookEndpoint",
]
