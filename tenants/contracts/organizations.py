"""Organizations, their projects and service accounts."""

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


class OrganizationStatus(enum.StrEnum):
    """A suspended tenant may look and pay, not infer; a closed one is gone for everybody."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


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
class MinuteLimited:
    """Whose requests of a minute are bounded: an organization's, a project's or a key's.

    `scope` names the kind, `end_user_limits` bind each end user of a key by himself.
    """

    scope: str
    scope_id: UUID
    limits: MinuteLimits
    end_user_limits: MinuteLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Organization:
    """A tenant. Row-level security partitions every tenant table by `organization_id`."""

    organization_id: UUID
    slug: str
    display_name: str
    currency: str


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
class TenantSummary:
    """An organization as the operator sees it among all."""

    organization_id: UUID
    slug: str
    display_name: str
    currency: str
    status: OrganizationStatus
    time_zone: str
    created_at: datetime
    members: int
    limits: MinuteLimits


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


ROWS_MAX = 101
"""Of one list call: a page, and one more that tells whether there is more."""
