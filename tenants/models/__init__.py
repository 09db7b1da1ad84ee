"""The tables of tenants: people, keys, events and webhooks.

Every table with an `organization_id` is under row-level security (sql/), and the composite foreign
keys there keep a project's key inside its organization. Used inside `tenants` only; others see
`tenants.contracts`.
"""

from tenants.models.keys import ApiKey
from tenants.models.outbox import (
    DeliveryState,
    Mail,
    OutboxEvent,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from tenants.models.people import Membership, OrganizationRow, Project, Role, User

__all__ = [
    "ApiKey",
    "DeliveryState",
    "Mail",
    "Membership",
    "OrganizationRow",
    "OutboxEvent",
    "Project",
    "Role",
    "User",
    "WebhookAttempt",
    "WebhookDelivery",
    "WebhookEndpoint",
]
