"""The audit log: who did what, from where, in a chain that shows every later change.

An entry is written in the transaction of what it records, last of all, since it locks the
organization's head. Never holds personal data beyond the address a request came from. Called by
every administrative function, and by other packages through the facade.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connections

from tenants.contracts import (
    ROWS_MAX,
    Actor,
    ActorKind,
    AuditEntry,
    AuditVerdict,
    Permission,
)
from tenants.models import AuditHead, AuditRow
from tenants.scope import APP_ALIAS, require_scope, tenant_scope

GENESIS = bytes(32)
VERIFY_ROWS_MAX = 2_000
"""Entries read at a time; the chain itself has no limit."""


def record_audit(
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: object,
    details: Mapping[str, object] | None = None,
    using: str = APP_ALIAS,
) -> UUID:
    """Add an entry inside the open scope and transaction; returns its id.

    `action` is dotted (`key.created`); `target_id` is written as text. Raises ScopeMissing outside
    a scope.
    """
    require_scope(using)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT tenants_record_audit(%s, %s, %s, %s, %s, %s, %s, %s::jsonb)",
            [
                actor.kind.value,
                actor.actor_id,
                actor.ip,
                actor.request_id,
                action,
                target_kind,
                str(target_id),
                json.dumps(dict(details or {})),
            ],
        )
        entry_id: UUID = cursor.fetchone()[0]
    return entry_id


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries; None is any. `since` is inclusive, `until` exclusive."""

    actions: tuple[str, ...] = ()
    actor_id: UUID | None = None
    target_kind: str | None = None
    target_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> dict[str, object]:
        """As look-ups of the log's table."""
        asked = {
            "action__in": self.actions or None,
            "actor_id": self.actor_id,
            "target_kind": self.target_kind,
            "target_id": self.target_id,
            "occurred_at__gte": self.since,
            "occurred_at__lt": self.until,
        }
        return {name: value for name, value in asked.items() if value is not None}


EVERYTHING = AuditFilter()


def list_audit(
    actor: Actor,
    wanted: AuditFilter = EVERYTHING,
    *,
    rows_max: int = ROWS_MAX,
    after: UUID | None = None,
    ascending: bool = False,
) -> list[AuditEntry]:
    """Entries in the order they were made, newest first unless `ascending`."""
    actor.require(Permission.AUDIT_READ)
    with tenant_scope(actor.organization_id):
        rows = AuditRow.objects.filter(**wanted.conditions())
        if after is not None:
            behind = AuditRow.objects.filter(id=after).values("sequence")
            rows = rows.filter(**{"sequence__gt" if ascending else "sequence__lt": behind})
        return [
            _entry(row)
            for row in rows.order_by("sequence" if ascending else "-sequence")[:rows_max]
        ]


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        entry_id=row.id,
        sequence=row.sequence,
        occurred_at=row.occurred_at,
        actor_kind=ActorKind(row.actor_kind),
        actor_id=row.actor_id,
        ip=row.ip,
        request_id=row.request_id,
        action=row.action,
        target_kind=row.target_kind,
        target_id=row.target_id,
        details=row.details,
    )


def verify_audit_chain(organization_id: UUID, using: str = APP_ALIAS) -> AuditVerdict:
    """Walk the chain from its start to its head; an entry changed, missing or moved is a fault.

    Somebody who may rewrite both the whole log and its head can forge another whole chain: a head's
    hash that was kept elsewhere shows that.
    """
    previous, sequence = GENESIS, 0
    # The head first: entries that are added meanwhile are then beyond it, and no fault.
    with tenant_scope(organization_id, using):
        head = AuditHead.objects.using(using).filter(organization_id=organization_id).first()
    at_end = (0, GENESIS) if head is None else (head.sequence, bytes(head.hash))
    while rows := _links(organization_id, sequence, at_end[0], using):
        for found, follows, hashed, canonical in rows:
            if found != sequence + 1:
                fault = f"entry {sequence + 1} is missing"
            elif bytes(follows) != previous:
                fault = f"entry {found} does not follow the one before it"
            elif hashlib.sha256(previous + bytes(canonical)).digest() != bytes(hashed):
                fault = f"entry {found} was changed"
            else:
                previous, sequence = bytes(hashed), found
                continue
            return AuditVerdict(sequence, previous, fault)
    if sequence < at_end[0]:
        return AuditVerdict(sequence, previous, f"entry {sequence + 1} is missing")
    if previous != at_end[1]:
        return AuditVerdict(sequence, previous, f"entry {sequence} is not the one the head names")
    return AuditVerdict(sequence, previous, None)


def _links(
    organization_id: UUID, after: int, until: int, using: str
) -> list[tuple[int, bytes, bytes, bytes]]:
    with tenant_scope(organization_id, using), connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT l.sequence, l.previous_hash, l.hash, tenants_audit_canonical(l)"
            "  FROM tenants_audit_log l"
            " WHERE l.organization_id = %s AND l.sequence > %s AND l.sequence <= %s"
            " ORDER BY l.sequence LIMIT %s",
            [organization_id, after, until, VERIFY_ROWS_MAX],
        )
        rows: list[tuple[int, bytes, bytes, bytes]] = cursor.fetchall()
    return rows
