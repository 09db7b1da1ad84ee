"""What other packages see of tenants: frozen values and typed errors. No ORM object leaves here."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


class Permission(enum.StrEnum):
    """One thing that somebody may do in an organization; `tenants.permissions` gives them out."""

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

    def require(self, permission: Permission) -> None:
        """Raises PermissionDenied without it."""
        if permission not in self.permissions:
            raise PermissionDenied(permission)


class KeyKind(enum.StrEnum):
    """A project's key infers and reads its own usage; an organization's administers."""

    PROJECT = "project"
    ADMIN = "admin"


class KeyScope(enum.StrEnum):
    """What a project's key may call."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    MODELS = "models"
    FILES = "files"
    BATCHES = "batches"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class MinuteLimits:
    """The most of each in any sixty seconds, and at once; None is no limit."""

    requests_max: int | None = None
    tokens_max: int | None = None
    input_tokens_max: int | None = None
    output_tokens_max: int | None = None
    concurrent_max: int | None = None


NO_LIMITS = MinuteLimits()


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
    kind: KeyKind = KeyKind.PROJECT
    scopes: frozenset[KeyScope] = frozenset(KeyScope)
    permissions: frozenset[Permission] = frozenset()
    """Of an admin key; a project's key has none."""
    models: frozenset[str] | None = None
    """Public ids of the only models it may use; None is all."""
    cidrs: tuple[str, ...] = ()
    """The only networks it may be used from; none is all."""
    project_limits: MinuteLimits = NO_LIMITS
    key_limits: MinuteLimits = NO_LIMITS
    end_user_limits: MinuteLimits = NO_LIMITS
    """Of each of the key's end users, by `safety_identifier` or `user`."""
    cost_tags: frozenset[str] = frozenset()
    """Keys of a request's `metadata` that are cost tags in this organization."""
    time_zone: str = "UTC"
    cache_per_project: bool = False
    """Whether projects of the organization share no cached prefixes."""
    prompts_kept_days: int | None = None
    """How long prompts and answers are kept; None is not at all."""


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


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of events: what it means, and the roles whose members get a mail of it."""

    name: str
    description: str
    mail_roles: frozenset[str]
    mail_kind: str


class TenantError(Exception):
    """Base of everything this package raises on purpose."""


class PermissionDenied(TenantError):
    """The actor may not do this here."""


class KeyMalformed(TenantError):
    """Not shaped like one of our keys (length, alphabet or checksum): no look-up was made."""


class KeyRejected(TenantError):
    """Unknown, revoked or expired: one error and one text for all three."""


class ProjectArchived(TenantError):
    """A valid key of a project that takes no requests any more."""


class ScopeMissing(TenantError):
    """Tenant data was asked for outside `tenant_scope`."""


class SealBroken(TenantError):
    """A sealed value does not open: it was altered, or SECRET_KEY is another."""
