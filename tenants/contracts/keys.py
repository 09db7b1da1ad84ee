"""API keys and what they are good for."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenants.contracts.actors import Permission
from tenants.contracts.organizations import NO_LIMITS, MinuteLimits


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


class KeyRefusal(enum.StrEnum):
    """Why nothing more may be spent or done for a key; it may have expired, too."""

    KEY_REVOKED = "key_revoked"
    ORGANIZATION_SUSPENDED = "organization_suspended"
    PROJECT_ARCHIVED = "project_archived"


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
