"""What other packages see of tenants: frozen values and typed errors. No ORM object leaves here."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """Who a valid API key speaks for, and the minute limits of its organization."""

    key_id: UUID
    project_id: UUID
    organization_id: UUID
    organization_slug: str
    currency: str
    requests_per_minute_max: int
    tokens_per_minute_max: int
    concurrent_requests_max: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key. `secret` is shown to its owner this once; only its hash is stored."""

    key_id: UUID
    secret: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Organization:
    """A tenant. Row-level security partitions every tenant table by `organization_id`."""

    organization_id: UUID
    slug: str
    display_name: str
    currency: str


class TenantError(Exception):
    """Base of everything this package raises on purpose."""


class KeyMalformed(TenantError):
    """Not shaped like one of our keys (length, alphabet or checksum): no look-up was made."""


class KeyRejected(TenantError):
    """Unknown, revoked or expired: one error and one text for all three."""


class ProjectArchived(TenantError):
    """A valid key of a project that takes no requests any more."""


class ScopeMissing(TenantError):
    """Tenant data was asked for outside `tenant_scope`."""
