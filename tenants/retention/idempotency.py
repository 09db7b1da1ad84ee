"""Idempotency keys: one run of a request per key, and its answer kept to be told again.

A running request holds its key by a lease that its process renews; when the process dies the key
comes free. Answers are sealed and bounded. Called by the gateway's doors and by management views
that move money.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connections
from uuid_utils.compat import uuid7

from tenants.contracts.retention import (
    IdempotencyBodyDiffers,
    IdempotencyLost,
    IdempotencyRunning,
    IdempotencyScope,
    StoredAnswer,
)
from tenants.models import IdempotentRequest
from tenants.scope import APP_ALIAS, tenant_scope
from tenants.sealing import Purpose, seal, unseal

KEPT_S = 24 * 3600
LEASE_S = 60
"""How long a key stays taken after its process died."""
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""A larger answer is not kept: a repetition is told so, and is not charged."""

_CLAIM = """
    INSERT INTO tenants_idempotent_request AS r
           (id, organization_id, scope_id, endpoint, key, body_hash, claim, lease_expires_at,
            headers, expires_at)
    VALUES (%(claim)s, %(organization)s, %(scope)s, %(endpoint)s, %(key)s, %(hash)s, %(claim)s,
            now() + make_interval(secs => %(lease)s), '[]', now() + make_interval(secs => %(kept)s))
    ON CONFLICT (organization_id, scope_id, endpoint, key) DO UPDATE
       SET claim = excluded.claim, body_hash = excluded.body_hash,
           lease_expires_at = excluded.lease_expires_at, status = NULL, headers = '[]',
           answer_sealed = NULL, created_at = now(), expires_at = excluded.expires_at
     WHERE r.expires_at <= now()
        OR (r.status IS NULL AND r.lease_expires_at <= now() AND r.body_hash = excluded.body_hash)
    RETURNING claim"""


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The right to run the request of a key, for LEASE_S at a time."""

    scope: IdempotencyScope
    claim: UUID


def claim_idempotency_key(
    scope: IdempotencyScope, body_hash: bytes
) -> IdempotencyClaim | StoredAnswer:
    """The right to run the request, or the answer it had.

    Raises IdempotencyRunning or IdempotencyBodyDiffers. Of many at once exactly one may run it.
    """
    claim: UUID = uuid7()
    with tenant_scope(scope.organization_id), connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            _CLAIM,
            {
                "claim": claim,
                "organization": scope.organization_id,
                "scope": scope.scope_id,
                "endpoint": scope.endpoint,
                "key": scope.key,
                "hash": body_hash,
                "lease": LEASE_S,
                "kept": KEPT_S,
            },
        )
        if cursor.fetchone() is not None:
            return IdempotencyClaim(scope, claim)
        row = IdempotentRequest.objects.filter(
            scope_id=scope.scope_id, endpoint=scope.endpoint, key=scope.key
        ).first()
    if row is not None and bytes(row.body_hash) != body_hash:
        raise IdempotencyBodyDiffers("the key was used with another body")
    # No row: the first request was refused a moment ago, and its key is free for the next try.
    if row is None or row.status is None:
        raise IdempotencyRunning("the first request of this key is still running")
    body = None
    if row.answer_sealed is not None:
        body = zlib.decompress(unseal(row.answer_sealed, Purpose.IDEMPOTENT_ANSWER))
    return StoredAnswer(row.status, [(name, value) for name, value in row.headers], body)


def renew_idempotency_claim(claim: IdempotencyClaim) -> None:
    """Keep the key for another LEASE_S; raises IdempotencyLost when another process took it."""
    _change(claim, "lease_expires_at = now() + make_interval(secs => %s)", [LEASE_S])


def store_idempotent_answer(
    claim: IdempotencyClaim, status: int, headers: Sequence[tuple[str, str]], body: bytes | None
) -> None:
    """What every repetition is told from now on, for KEPT_S; raises IdempotencyLost.

    `body` None, or one beyond ANSWER_BYTES_MAX, is remembered as too large.
    """
    sealed = None
    if body is not None and len(body) <= ANSWER_BYTES_MAX:
        sealed = seal(zlib.compress(body), Purpose.IDEMPOTENT_ANSWER)
    _change(
        claim,
        "status = %s, headers = %s, answer_sealed = %s",
        [status, json.dumps(list(headers)), sealed],
    )


def free_idempotency_key(claim: IdempotencyClaim) -> None:
    """Forget the request: nothing was charged, and a repetition runs anew. Idempotent."""
    with tenant_scope(claim.scope.organization_id):
        IdempotentRequest.objects.filter(claim=claim.claim, status=None).delete()


def _change(
    claim: IdempotencyClaim, assignment: str, values: Sequence[int | str | bytes | None]
) -> None:
    scope = claim.scope
    with tenant_scope(scope.organization_id), connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            f"UPDATE tenants_idempotent_request SET {assignment}"  # noqa: S608 - our own text
            " WHERE scope_id = %s AND endpoint = %s AND key = %s AND claim = %s"
            " AND status IS NULL",
            [*values, scope.scope_id, scope.endpoint, scope.key, claim.claim],
        )
        if cursor.rowcount != 1:
            raise IdempotencyLost("the key is another process's by now")
