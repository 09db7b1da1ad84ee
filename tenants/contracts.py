"""What other packages see of tenants: frozen values and typed errors. No ORM object leaves here."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
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


class Role(enum.StrEnum):
    """A member's place in an organization; `tenants.permissions` says what it allows."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


class OrganizationStatus(enum.StrEnum):
    """A suspended tenant may look and pay, not infer; a closed one is gone for everybody."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


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


NO_PROJECT = UUID(int=0)
"""The project of an admin key: no row has this id."""


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """Who a valid API key speaks for, and the minute limits of its organization."""

    key_id: UUID
    project_id: UUID
    """NO_PROJECT for an admin key."""
    organization_id: UUID
    organization_slug: str
    currency: str
    requests_per_minute_max: int
    tokens_per_minute_max: int
    concurrent_requests_max: int
    expires_at: datetime | None
    """Whichever comes first, its expiry or the end of its grace after a rotation."""
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
    input_tokens_per_minute_max: int | None = None
    output_tokens_per_minute_max: int | None = None

    @property
    def rules(self) -> "KeyRules":
        """What the key's requests are bound by wherever they run."""
        return KeyRules(self.models, self.cache_per_project)


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What binds a key's requests, bulk ones too."""

    models: frozenset[str] | None = None
    cache_per_project: bool = False

    def allow(self, public_id: str) -> bool:
        """Whether the key may use the model that would serve."""
        return self.models is None or public_id in self.models


NO_RULES = KeyRules()


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
    """A kind of events: what it means, and which members, by permission, get a mail of it."""

    name: str
    description: str
    mail_permission: Permission | None


@dataclass(frozen=True, slots=True)
class OrganizationSettings:
    """An organization as its members see it."""

    organization_id: UUID
    slug: str
    display_name: str
    currency: str
    status: OrganizationStatus
    time_zone: str
    """An IANA name: where its days and months begin."""
    limits: MinuteLimits
    cost_tags: tuple[str, ...]
    cache_per_project: bool
    second_factor_required: bool
    """Of members who come by session; keys are not asked."""
    prompts_kept_days: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TenantBacklogs:
    """What waits for workers, of all tenants together. Lags are of whatever waits longest."""

    outbox_lag_s: float
    """Of events nobody has fanned out yet."""
    deliveries_due: int
    """Webhook deliveries whose time has come, counted to BACKLOG_COUNTED_MAX."""
    delivery_lag_s: float
    mail_lag_s: float
    endpoints_disabled: int
    """Webhook endpoints that are off because they failed too long."""
    exports_waiting: int
    export_lag_s: float


@dataclass(frozen=True, slots=True)
class MemberOf:
    """One organization of a user's."""

    organization: Organization
    role: Role
    status: OrganizationStatus


@dataclass(frozen=True, slots=True)
class Member:
    """A user in an organization."""

    user_id: UUID
    email: str
    display_name: str
    role: Role
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open, used or withdrawn invitation; its address is forgotten once it is not open."""

    invitation_id: UUID
    email: str | None
    role: Role
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class IssuedInvitation:
    """A new invitation. `token` goes to the invited address; only its hash is stored."""

    invitation: Invitation
    token: str
    link: str
    """Where to accept; it holds the token."""


@dataclass(frozen=True, slots=True)
class InvitationOffer:
    """What somebody who holds an open invitation's token may know before accepting."""

    organization_id: UUID
    display_name: str
    role: Role
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """A project; an archived one admits no request."""

    project_id: UUID
    name: str
    limits: MinuteLimits
    created_at: datetime
    archived_at: datetime | None


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A program's account in a project; disabling it stops its keys."""

    service_account_id: UUID
    project_id: UUID
    name: str
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeySettings:
    """What the maker of a project's key decides, and may change later."""

    name: str
    scopes: frozenset[KeyScope] = frozenset(KeyScope)
    models: frozenset[str] | None = None
    cidrs: tuple[str, ...] = ()
    expires_at: datetime | None = None
    limits: MinuteLimits = NO_LIMITS
    end_user_limits: MinuteLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What is shown of a key: never its secret, never its hash."""

    key_id: UUID
    kind: KeyKind
    project_id: UUID | None
    """None for an admin key."""
    service_account_id: UUID | None
    created_by: UUID | None
    prefix: str
    last4: str
    settings: KeySettings
    permissions: frozenset[Permission]
    created_at: datetime
    last_used_at: datetime | None
    """To about five minutes."""
    revoked_at: datetime | None
    revoke_at: datetime | None
    """When a rotated key stops working."""
    replaced_by: UUID | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that was done: ids only, no personal data but the address it came from."""

    entry_id: UUID
    sequence: int
    occurred_at: datetime
    actor_kind: ActorKind
    actor_id: UUID | None
    ip: str
    request_id: UUID | None
    action: str
    target_kind: str
    target_id: str
    details: Mapping[str, Any]  # a JSON object, whose keys the action decides


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """Whether an organization's audit log is whole; `fault` says where it is not.

    `entries` are those that are, `head` the hash of the last of them.
    """

    entries: int
    head: bytes
    fault: str | None


ROWS_MAX = 101
"""Of one list call: a page, and one more that tells whether there is more."""


class TenantError(Exception):
    """Base of everything this package raises on purpose."""


class PermissionDenied(TenantError):
    """The actor may not do this here."""


class SecondFactorMissing(TenantError):
    """The organization demands a second factor, and this person has none; or would demand it of
    others without having one.
    """


class TenantObjectNotFound(TenantError):
    """No such row in this organization: unknown, another tenant's or gone, and not told apart."""


class OrganizationNotFound(TenantObjectNotFound):
    """Unknown or closed, or the user is not a member of it."""


class InvitationNotFound(TenantObjectNotFound):
    """Unknown, used, withdrawn or expired."""


class TenantConflict(TenantError):
    """The state of things forbids it; the text says what is in the way."""


class LimitReached(TenantConflict):
    """There are as many as there may be; `limit` names it, for metrics."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class LastOwner(TenantConflict):
    """An organization keeps at least one owner."""


class AlreadyRotated(TenantConflict):
    """The key has a successor already: rotate that one."""


class InvalidValue(TenantError):
    """A setting that cannot be; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class OrganizationSuspended(TenantError):
    """A valid key of an organization that may not infer."""


class InvitationForAnother(TenantError):
    """The invitation was sent to another address than the user's."""


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
