"""Exports: everything an organization may see of its own, as a ZIP of JSON lines.

The rows are those that row-level security shows to the tenant, table by table, so that a table
nobody thought of is in it too; what is sealed or hashed (bytes) is left out, kept prompts are
opened. Asked for by a member, written by a task, stored in parts, gone after a week.
"""

import json
import logging
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import IO
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from psycopg import sql
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import ROWS_MAX, Actor, Permission
from tenants.contracts.retention import Export, ExportNotFound, ExportPending
from tenants.database_errors import broken_constraint
from tenants.events.outbox import emit
from tenants.models import Exchange, ExportPart, ExportState
from tenants.models import Export as Row
from tenants.retention.exchanges import opened
from tenants.scope import APP_ALIAS, tenant_scope

HOUSEKEEPER_ALIAS = "housekeeper"
KEPT = timedelta(days=7)
LEASE = timedelta(minutes=30)
ATTEMPTS_MAX = 3
PART_BYTES = 1024 * 1024
EXPORT_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Of the ZIP; a larger organization is exported by its operator."""
ROWS_PER_FETCH = 2_000
LEFT_OUT = frozenset(
    {"tenants_export", "tenants_export_part", "tenants_idempotent_request", "tenants_exchange"}
)
"""Copies of what is in the export otherwise; kept prompts come opened."""

logger = logging.getLogger(__name__)

# Columns of each table that the app may read; bytes are hashes and seals.
_COLUMNS = """
    SELECT c.relname, array_agg(a.attname ORDER BY a.attnum),
           array_agg(t.typname = 'numeric' ORDER BY a.attnum)
      FROM pg_class c
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_type t ON t.oid = a.atttypid AND t.typname <> 'bytea'
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT c.relispartition AND c.relrowsecurity
       AND has_column_privilege(c.oid, a.attnum, 'SELECT')
       AND (c.relname = 'tenants_organization' OR EXISTS (
            SELECT FROM pg_attribute o
             WHERE o.attrelid = c.oid AND o.attname = 'organization_id'))
     GROUP BY c.relname ORDER BY c.relname"""


def request_export(actor: Actor) -> Export:
    """Ask for an export; raises PermissionDenied, or ExportPending while one is being written."""
    actor.require(Permission.DATA_EXPORT)
    try:
        with tenant_scope(actor.organization_id):
            row = Row.objects.create(
                id=uuid7(),
                organization_id=actor.organization_id,
                requested_by=actor.actor_id,
                expires_at=Now() + KEPT,
            )
            record_audit(actor, "export.requested", "export", row.id)
            row.refresh_from_db()
            return _shown(row)
    except IntegrityError as error:
        if broken_constraint(error) == "tenants_one_pending_export":
            raise ExportPending("an export is being written: wait for it") from None
        raise


def list_exports(
    actor: Actor, *, rows_max: int = ROWS_MAX, after: UUID | None = None, ascending: bool = False
) -> list[Export]:
    """Exports that have not expired, newest first unless `ascending`."""
    actor.require(Permission.DATA_EXPORT)
    with tenant_scope(actor.organization_id):
        rows = Row.objects.filter(expires_at__gt=Now())
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        return [_shown(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def read_export(actor: Actor, export_id: UUID) -> Export:
    """One export; raises PermissionDenied or ExportNotFound."""
    actor.require(Permission.DATA_EXPORT)
    with tenant_scope(actor.organization_id):
        return _shown(_find(export_id))


def open_export(actor: Actor, export_id: UUID) -> Export:
    """A ready export, about to be downloaded: the audit log says by whom.

    Raises PermissionDenied, or ExportNotFound while it is not ready.
    """
    actor.require(Permission.DATA_EXPORT)
    with tenant_scope(actor.organization_id):
        row = _find(export_id)
        if row.state != ExportState.READY:
            raise ExportNotFound("the export is not ready")
        record_audit(actor, "export.downloaded", "export", row.id)
        return _shown(row)


def export_part(actor: Actor, export_id: UUID, number: int) -> bytes | None:
    """The part of that number, from 0; None behind the last. Raises PermissionDenied."""
    actor.require(Permission.DATA_EXPORT)
    with tenant_scope(actor.organization_id):
        part = ExportPart.objects.filter(
            export_id=export_id, export__expires_at__gt=Now(), number=number
        ).first()
        return None if part is None else bytes(part.content)


def write_due_export(now: datetime) -> bool:
    """Write one waiting export, if there is any, as the task does; whether there was one."""
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        row = (
            Row.objects.using(HOUSEKEEPER_ALIAS)
            .select_for_update(skip_locked=True, no_key=True)
            .filter(
                Q(lease_expires_at=None) | Q(lease_expires_at__lte=now), state=ExportState.PENDING
            )
            .order_by("id")
            .first()
        )
        if row is None:
            return False
        if row.attempts >= ATTEMPTS_MAX:
            row.state = ExportState.FAILED
            row.save(update_fields=["state"])
            return True
        row.attempts = F("attempts") + 1
        row.lease_expires_at = now + LEASE
        row.save(update_fields=["attempts", "lease_expires_at"])
    with tempfile.TemporaryFile() as file:
        _write(row.organization_id, file)
        _store(row.organization_id, row.id, file, now)
    return True


def _write(organization_id: UUID, file: IO[bytes]) -> None:
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        # One moment for all tables: an event without its transaction would look like a fault.
        tenant_scope(organization_id, one_moment=True),
    ):
        with connections[APP_ALIAS].cursor() as cursor:
            cursor.execute(_COLUMNS)
            tables = cursor.fetchall()
        for table, columns, numeric in tables:
            if table not in LEFT_OUT:
                _add(archive, f"{table}.jsonl", _rows(table, columns, numeric))
        _add(archive, "members.jsonl", _members())
        _add(archive, "exchanges.jsonl", _exchanges())


def _add(archive: zipfile.ZipFile, name: str, lines: Iterator[bytes]) -> None:
    with archive.open(name, "w", force_zip64=True) as entry:
        for line in lines:
            entry.write(line + b"\n")


def _rows(table: str, columns: list[str], numeric: list[bool]) -> Iterator[bytes]:
    """Amounts as text: most readers of JSON make floats of numbers."""
    selected = sql.SQL(", ").join(
        sql.SQL("{0}::text AS {0}" if exact else "{0}").format(sql.Identifier(column))
        for column, exact in zip(columns, numeric, strict=True)
    )
    query = sql.SQL("SELECT to_json(r)::text FROM (SELECT {} FROM {}) r").format(
        selected, sql.Identifier(table)
    )
    with connections[APP_ALIAS].chunked_cursor() as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_PER_FETCH):
            for (line,) in rows:
                yield line.encode()


def _members() -> Iterator[bytes]:
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT to_json(m)::text  FROM tenants_members(NULL, true, NULL, NULL, NULL) m"
        )
        for (line,) in cursor.fetchall():
            yield line.encode()


def _exchanges() -> Iterator[bytes]:
    for row in Exchange.objects.filter(expires_at__gt=Now()).order_by("id").iterator(100):
        exchange = opened(row)
        yield json.dumps(
            {
                "request_id": str(exchange.request_id),
                "project_id": str(exchange.project_id),
                "prompt": exchange.prompt,
                "answer": exchange.answer,
                "truncated": exchange.truncated,
                "created_at": exchange.created_at.isoformat(),
            }
        ).encode()


def _store(organization_id: UUID, export_id: UUID, file: IO[bytes], now: datetime) -> None:
    size_bytes = file.tell()
    file.seek(0)
    with tenant_scope(organization_id):
        if size_bytes > EXPORT_BYTES_MAX:
            logger.warning("export %s is too large: %d bytes", export_id, size_bytes)
            Row.objects.filter(id=export_id).update(state=ExportState.FAILED)
            return
        number = 0
        while part := file.read(PART_BYTES):
            ExportPart.objects.create(
                export_id=export_id,
                organization_id=organization_id,
                number=number,
                content=part,
            )
            number += 1
        Row.objects.filter(id=export_id).update(
            state=ExportState.READY,
            ready_at=now,
            expires_at=now + KEPT,
            size_bytes=size_bytes,
        )
        emit(organization_id, "export.ready", {"export_id": str(export_id)})


def _find(export_id: UUID) -> Row:
    row = Row.objects.filter(id=export_id, expires_at__gt=Now()).first()
    if row is None:
        raise ExportNotFound("no such export")
    return row


def _shown(row: Row) -> Export:
    return Export(
        export_id=row.id,
        state=row.state,
        created_at=row.created_at,
        ready_at=row.ready_at,
        expires_at=row.expires_at,
        size_bytes=row.size_bytes,
    )
