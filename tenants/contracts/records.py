"""The audit log, kinds of events, and what waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tenants.contracts.actors import ActorKind, Permission


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of events: what it means, and which members, by permission, get a mail of it."""

    name: str
    description: str
    mail_permission: Permission | None


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
