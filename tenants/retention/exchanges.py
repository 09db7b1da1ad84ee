"""Kept prompts and answers, for organizations that ask for it: sealed, bounded, forgotten in time.

Nothing is kept by default. What is kept never enters a log or an event. Written by the gateway
after an answer, read through the management API by those who may.
"""

import zlib
from datetime import timedelta
from uuid import UUID

from django.db.models.functions import Now

from tenants.contracts import Actor, Permission
from tenants.contracts.retention import Exchange, ExchangeNotFound
from tenants.models import Exchange as Row
from tenants.scope import tenant_scope
from tenants.sealing import Purpose, seal, unseal

TEXT_BYTES_MAX = 1024 * 1024
"""Of a prompt, and of an answer; the rest of a longer one is not kept."""


def keep_exchange(
    organization_id: UUID,
    project_id: UUID,
    request_id: UUID,
    prompt: bytes,
    answer: bytes,
    days: int,
) -> None:
    """Keep a request's prompt and answer for so many days."""
    with tenant_scope(organization_id):
        Row.objects.create(
            id=request_id,
            organization_id=organization_id,
            project_id=project_id,
            prompt_sealed=_sealed(prompt),
            answer_sealed=_sealed(answer),
            truncated=max(len(prompt), len(answer)) > TEXT_BYTES_MAX,
            expires_at=Now() + timedelta(days=days),
        )


def read_exchange(actor: Actor, request_id: UUID) -> Exchange:
    """Prompt and answer of one request; raises PermissionDenied or ExchangeNotFound.

    What has expired is not shown, swept or not.
    """
    actor.require(Permission.REQUESTS_READ)
    with tenant_scope(actor.organization_id):
        row = Row.objects.filter(id=request_id, expires_at__gt=Now()).first()
    if row is None:
        raise ExchangeNotFound("no prompt of such a request is kept")
    return opened(row)


def opened(row: Row) -> Exchange:
    """The row, readable; raises SealBroken."""
    return Exchange(
        request_id=row.id,
        project_id=row.project_id,
        prompt=_text(row.prompt_sealed),
        answer=_text(row.answer_sealed),
        truncated=row.truncated,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def _sealed(text: bytes) -> bytes:
    return seal(zlib.compress(text[:TEXT_BYTES_MAX]), Purpose.EXCHANGE)


def _text(sealed: bytes | memoryview) -> str:
    return zlib.decompress(unseal(sealed, Purpose.EXCHANGE)).decode("utf-8", "replace")
