"""Who acts, and what they may do."""

import enum
from dataclasses import dataclass
from uuid import UUID

from tenants.contracts.errors import PermissionDenied


class Permission(enum.StrEnum):
    """One thing that somebody may do in an organization; `tenants.people.permissions` gives it."""

    ORGANIZATION_READ = "organization.read"
    ORGANIZATION_WRITE = "organization.write"
    ORGANIZATION_DELETE = "organization.delete"
    MEMBERS_READ = "members.read"
    MEMBERS_WRITE = "members.write"
    PROJECTS_READ = "projects.read"
    PROJECTS_WRITE = "projects.write"
    KEYS_READ = "keys.read"
    KEYS_WRITE = "keys.write"
    LIMITS_READ = "limits.read"
    LIMITS_WRITE = "limits.write"
    CATALOG_READ = "catalog.read"
    CATALOG_WRITE = "catalog.write"
    """The tenant's own aliases; prices are the operator's."""
    USAGE_READ = "usage.read"
    REQUESTS_READ = "requests.read"
    """Receipts, and prompts where they are kept."""
    BILLING_READ = "billing.read"
    BILLING_WRITE = "billing.write"
    WEBHOOKS_READ = "webhooks.read"
    WEBHOOKS_WRITE = "webhooks.write"
    AUDIT_READ = "audit.read"
    DATA_EXPORT = "data.export"
    JOBS_READ = "jobs.read"
    JOBS_WRITE = "jobs.write"
    PLAYGROUND = "playground"


class Role(enum.StrEnum):
    """A member's place in an organization; `tenants.permissions` says what it allows."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


class ActorKind(enum.StrEnum):
    """What kind of somebody acted."""

    USER = "user"
    API_KEY = "api_key"
    OPERATOR = "operator"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts in an organization, and what they may do there; the audit log names them by id."""

    kind: ActorKind
    actor_id: UUID | None
    organization_id: UUID
    permissions: frozenset[Permission]
    ip: str = ""
    request_id: UUID | None = None
    has_second_factor: bool = False
    """Of a person; a program has none."""

    def require(self, permission: Permission) -> None:
        """Raises PermissionDenied without it."""
        if permission not in self.permissions:
            raise PermissionDenied(permission)
