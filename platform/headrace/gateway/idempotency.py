"""`Idempotency-Key` on the token routes: one run per key, one charge, and its answer told again.

A request under a key runs to its end even when its client has left: the retry that follows is what
the key is for. Only what was charged is kept; a refusal frees the key. Plain HTTP only: a socket's
requests have no keys. Called by `generation_route`.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import structlog
from django.db import DatabaseError, InterfaceError

import tenants.facade
from headrace import errors
from headrace.gateway.database import in_database
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import (
    Receive,
    Send,
    encode_headers,
    start_response,
)
from headrace.gateway.transport.recording import Recorder, never_gone
from headrace.telemetry import metrics
from tenants.contracts.retention import (
    IdempotencyBodyDiffers,
    IdempotencyLost,
    IdempotencyRunning,
    IdempotencyScope,
    StoredAnswer,
)
from tenants.facade import IdempotencyClaim

log = structlog.get_logger(__name__)
KEY_CHARS_MAX = 255
RENEW_S = tenants.facade.IDEMPOTENCY_LEASE_S / 3
REPLAYED_HEADERS = frozenset(
    {
        b"content-type",
        b"cache-control",
        b"x-accel-buffering",
        b"x-request-id",
        b"openai-version",
        b"openai-processing-ms",
    }
)
"""Of the first answer; its `x-request-id` names the receipt. Limits are those of then: left out."""

Run = Callable[[Receive, Send], Awaitable[bool]]
"""Answers the request, whatever happens; tells whether it was charged."""


def checked_key(key: str) -> str:
    """The key; raises ApiError 400 for one that is too long, empty or not printable ASCII."""
    if not 1 <= len(key) <= KEY_CHARS_MAX or not all(" " <= one <= "~" for one in key):
        raise errors.idempotency_key_invalid()
    return key


async def once(
    runtime: GatewayRuntime, scope: IdempotencyScope, body: bytes, send: Send, run: Run
) -> None:
    """Runs the request if its key is new, or answers as the first time.

    Raises IdempotencyRunning, IdempotencyBodyDiffers, or ApiError 409 for an answer too large.
    """
    found = await in_database(_claim, scope, body)
    if isinstance(found, StoredAnswer):
        await _replay(found, send)
        return
    await asyncio.shield(runtime.spawn(_run_and_store(found, send, run)))


def _claim(scope: IdempotencyScope, body: bytes) -> IdempotencyClaim | StoredAnswer:
    """On a database thread, for hashing twenty megabytes takes its time."""
    return claimed(scope, hashlib.sha256(body).digest())


def claimed(scope: IdempotencyScope, body_hash: bytes) -> IdempotencyClaim | StoredAnswer:
    """`tenants.facade.claim_idempotency_key`, with its refusals counted.

    Raises IdempotencyRunning, IdempotencyBodyDiffers, or ApiError 409 for an answer too large.
    """
    try:
        found = tenants.facade.claim_idempotency_key(scope, body_hash)
    except IdempotencyRunning:
        metrics.IDEMPOTENCY_CONFLICTS.labels("running").inc()
        raise
    except IdempotencyBodyDiffers:
        metrics.IDEMPOTENCY_CONFLICTS.labels("body_differs").inc()
        raise
    if isinstance(found, StoredAnswer) and found.body is None:
        metrics.IDEMPOTENCY_CONFLICTS.labels("answer_not_kept").inc()
        raise errors.idempotent_answer_too_large()
    return found


def count_if_too_large(body: bytes | None) -> None:
    """An answer that will not be kept meets a limit; None is one that was not even recorded."""
    if body is None or len(body) > tenants.facade.IDEMPOTENT_ANSWER_BYTES_MAX:
        metrics.LIMIT_HITS.labels("idempotent_answer_bytes").inc()


async def _run_and_store(claim: IdempotencyClaim, send: Send, run: Run) -> None:
    limit = tenants.facade.IDEMPOTENT_ANSWER_BYTES_MAX
    recorder = Recorder(send, limit)
    renewing = asyncio.create_task(_renew(claim))
    charged = False
    try:
        charged = await run(never_gone(), recorder)
    finally:
        renewing.cancel()
        with suppress(DatabaseError, InterfaceError, IdempotencyLost):
            # When the database is away the key comes free by itself.
            await _store_or_free(claim, recorder, charged=charged)
        # The last byte goes out after the answer is kept: who has it may ask again.
        await recorder.release()


async def _store_or_free(claim: IdempotencyClaim, recorder: Recorder, *, charged: bool) -> None:
    if not charged or recorder.status is None:
        await in_database(tenants.facade.free_idempotency_key, claim)
        return
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in recorder.headers
        if name in REPLAYED_HEADERS
    ]
    body = recorder.body if recorder.complete else None
    count_if_too_large(body)
    await in_database(tenants.facade.store_idempotent_answer, claim, recorder.status, headers, body)


async def _renew(claim: IdempotencyClaim) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        try:
            await in_database(tenants.facade.renew_idempotency_claim, claim)
        except IdempotencyLost:
            return
        except (DatabaseError, InterfaceError) as error:
            log.warning("idempotency key not renewed", error=str(error).strip())


async def _replay(answer: StoredAnswer, send: Send) -> None:
    assert answer.body is not None, "one that was not kept is refused when it is found"
    headers: Mapping[str, str] = {**dict(answer.headers), "idempotent-replayed": "true"}
    length = {} if _is_stream(headers) else {"content-length": str(len(answer.body))}
    await start_response(send, answer.status, encode_headers({**headers, **length}))
    await send({"type": "http.response.body", "body": answer.body})


def _is_stream(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").startswith("text/event-stream")
