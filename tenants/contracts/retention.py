"""What other packages see of keeping and forgetting: the part of `tenants.contracts` about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenants.contracts import InvalidValue, TenantConflict, TenantError, TenantObjectNotFound


@dataclass(frozen=True, slots=True)
class IdempotencyScope:
    """Where a key counts: the same key elsewhere is another. `scope_id` is, say, an API key."""

    organization_id: UUID
    scope_id: UUID
    endpoint: str
    key: str


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What was answered under a key; `body` is None where it was too large to keep."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Prompt and answer of one request as they went over the wire."""

    request_id: UUID
    project_id: UUID
    prompt: str
    answer: str
    truncated: bool
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Export:
    """A ZIP of an organization's data: pending, ready until it expires, or failed."""

    export_id: UUID
    state: str
    created_at: datetime
    ready_at: datetime | None
    expires_at: datetime
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A deletion that was asked for; `token` confirms it until it expires, and is shown once."""

    token: str
    expires_at: datetime


class IdempotencyRunning(TenantError):
    """The first request of this key has no answer yet."""


class IdempotencyBodyDiffers(TenantError):
    """The key was used with another body."""


class IdempotencyLost(TenantError):
    """Another process runs the request of this key now."""


class ExchangeNotFound(TenantObjectNotFound):
    """No such request here, or its prompt was not kept, or is forgotten."""


class ExportNotFound(TenantObjectNotFound):
    """No such export, or it is not ready, or it has expired."""


class ExportPending(TenantConflict):
    """One export of the organization is being written: wait for it."""


class ErasureNotConfirmed(InvalidValue):
    """The token is wrong or too old, or the organization was not named."""
