"""Posting what is due: claim, sign, post, record; retry for three days, then give up.

A claim is a lease in the database, so that two workers never post the same delivery at once and a
dead one's claims come free. Receivers may still see an event twice: `webhook-id` tells. Runs as
the housekeeper; called by the delivery task alone.
"""

import json
import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from uuid_utils.compat import uuid7

from tenants.contracts import SealBroken
from tenants.events.outbox import FOR_MAIL_ALONE, emit
from tenants.models import DeliveryState, WebhookAttempt, WebhookDelivery, WebhookEndpoint
from tenants.sealing import Purpose, unseal
from tenants.webhooks.fan_out import HOUSEKEEPER_ALIAS
from tenants.webhooks.posting import Answer, Resolve, post, resolve_by_system
from tenants.webhooks.signing import signed_headers

CLAIM_MAX = 16
"""Deliveries posted at once by one process, a thread each."""
CLAIM_PER_ORGANIZATION_MAX = 4
"""So that one tenant's slow receivers do not take all the threads, however many it has."""
LEASE_S = 120
"""Beyond the worst of one post: resolving, three connections and POST_TIMEOUT_S."""
RETRY_S = (5, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Pauses between tries: eleven tries over three days and three hours."""
JITTER_PERCENT_MAX = 10
DISABLE_AFTER = timedelta(days=3)
"""An endpoint that failed for this long, with no success between, is disabled."""

logger = logging.getLogger(__name__)

_CLAIM = """
    WITH due AS (
        SELECT d.organization_id, array_agg(DISTINCT d.endpoint_id) AS endpoints
          FROM tenants_webhook_delivery d
          JOIN tenants_webhook_endpoint w ON w.id = d.endpoint_id AND w.disabled_at IS NULL
         WHERE d.state = 'pending' AND d.next_at <= %(now)s
           AND (d.lease_expires_at IS NULL OR d.lease_expires_at <= %(now)s)
         -- random(): where there are more tenants than threads, none is always the last.
         GROUP BY d.organization_id ORDER BY random() LIMIT %(items_max)s
    ), free AS (
        SELECT due.organization_id, asking.endpoint_id, one.id, one.next_at
          FROM due, unnest(due.endpoints) AS asking (endpoint_id), LATERAL (
            SELECT d.id, d.next_at FROM tenants_webhook_delivery d
             WHERE d.endpoint_id = asking.endpoint_id
               AND d.state = 'pending' AND d.next_at <= %(now)s
               AND (d.lease_expires_at IS NULL OR d.lease_expires_at <= %(now)s)
             ORDER BY d.next_at LIMIT %(per_organization_max)s
               FOR UPDATE SKIP LOCKED) AS one
    ), turn AS (
        SELECT id, organization_id,
               row_number() OVER (PARTITION BY endpoint_id ORDER BY next_at, id) AS round
          FROM free
    ), seat AS (
        SELECT id, row_number() OVER (PARTITION BY organization_id ORDER BY round, random())
               AS place FROM turn
    ), claimed AS (
        SELECT id FROM seat WHERE place <= %(per_organization_max)s
         ORDER BY place, random() LIMIT %(items_max)s
    )
    UPDATE tenants_webhook_delivery d SET lease_expires_at = %(lease)s
      FROM claimed, tenants_webhook_endpoint w, tenants_outbox_event e
     WHERE d.id = claimed.id AND w.id = d.endpoint_id AND e.id = d.event_id
    RETURNING d.id, d.organization_id, w.id, w.url, w.secret_sealed,
              CASE WHEN w.previous_secret_until > %(now)s THEN w.previous_secret_sealed END,
              e.id, e.kind, e.data::text, e.created_at"""


@dataclass(frozen=True, slots=True)
class _Claim:
    delivery_id: UUID
    organization_id: UUID
    endpoint_id: UUID
    url: str
    secret_sealed: bytes
    previous_secret_sealed: bytes | None
    event_id: UUID
    kind: str
    data: Any  # a JSON object, as the emitter wrote it
    created_at: datetime
    lease_expires_at: datetime


def deliver_due(
    now: datetime, *, loopback_allowed: bool = False, resolve: Resolve = resolve_by_system
) -> int:
    """Post up to CLAIM_MAX deliveries that are due; returns how many were tried."""
    claims = _claim(now)
    if not claims:
        return 0
    with ThreadPoolExecutor(CLAIM_MAX, thread_name_prefix="webhook") as threads:
        answers = threads.map(
            lambda claim: _post(claim, now, resolve, loopback_allowed=loopback_allowed), claims
        )
        for claim, answer in zip(claims, answers, strict=True):
            _record(claim, answer, now)
    return len(claims)


def payload(event_id: UUID, kind: str, data: Any, created_at: datetime) -> bytes:
    """The body of a delivery: Standard Webhooks' `type`, `timestamp` and `data`, and what OpenAI's
    clients look for beside them."""
    body = {
        "object": "event",
        "id": message_id(event_id),
        "type": kind,
        "timestamp": created_at.isoformat(),
        "created_at": int(created_at.timestamp()),
        "data": {name: value for name, value in data.items() if name not in FOR_MAIL_ALONE},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def message_id(event_id: UUID) -> str:
    """The `webhook-id`: the same at every try and to every endpoint."""
    return f"evt_{event_id.hex}"


def _claim(now: datetime) -> Sequence[_Claim]:
    lease = now + timedelta(seconds=LEASE_S)
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(
            _CLAIM,
            {
                "now": now,
                "lease": lease,
                "items_max": CLAIM_MAX,
                "per_organization_max": CLAIM_PER_ORGANIZATION_MAX,
            },
        )
        return [
            _Claim(*ids, json.loads(data), at, lease)  # type: ignore[call-arg]  # eight of them
            for *ids, data, at in cursor.fetchall()
        ]


def _post(claim: _Claim, now: datetime, resolve: Resolve, *, loopback_allowed: bool) -> Answer:
    body = payload(claim.event_id, claim.kind, claim.data, claim.created_at)
    sealed = [claim.secret_sealed, claim.previous_secret_sealed]
    try:
        signing_secrets = [
            unseal(one, Purpose.WEBHOOK_SECRET).decode() for one in sealed if one is not None
        ]
    except SealBroken:
        # Nothing unsigned leaves; a rotation mends it, the others' deliveries must go on.
        return Answer(None, "the stored secret does not open: rotate it", "", 0)
    headers = signed_headers(
        message_id(claim.event_id), int(now.timestamp()), body, signing_secrets
    )
    return post(claim.url, body, headers, loopback_allowed=loopback_allowed, resolve=resolve)


def _record(claim: _Claim, answer: Answer, now: datetime) -> None:
    """Log the try and decide what follows; a claim whose lease was lost decides nothing."""
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        endpoint = (
            WebhookEndpoint.objects.using(HOUSEKEEPER_ALIAS)
            .select_for_update(no_key=True)
            .filter(id=claim.endpoint_id)
            .first()
        )
        delivery = (
            WebhookDelivery.objects.using(HOUSEKEEPER_ALIAS)
            .select_for_update(no_key=True)
            .filter(id=claim.delivery_id, lease_expires_at=claim.lease_expires_at)
            .first()
        )
        if endpoint is None or delivery is None:
            return
        delivery.lease_expires_at = None
        delivery.attempts += 1
        delivery.tries += 1
        if answer.accepted:
            delivery.state = DeliveryState.DELIVERED
            delivery.delivered_at = now
            endpoint.failing_since = None
        else:
            _put_off(delivery, now)
            endpoint.failing_since = endpoint.failing_since or now
        delivery.save()
        endpoint.save(update_fields=["failing_since"])
        WebhookAttempt.objects.using(HOUSEKEEPER_ALIAS).create(
            id=uuid7(),
            organization_id=claim.organization_id,
            delivery_id=claim.delivery_id,
            attempt=delivery.attempts,
            started_at=now,
            latency_ms=answer.latency_ms,
            status_code=answer.status_code,
            error=answer.error,
            answer_start=answer.answer_start,
        )
        failed_for = now - (endpoint.failing_since or now)
        if failed_for >= DISABLE_AFTER and endpoint.disabled_at is None:
            _disable(endpoint, now)


def _put_off(delivery: WebhookDelivery, now: datetime) -> None:
    if delivery.tries > len(RETRY_S):
        delivery.state = DeliveryState.FAILED
        return
    pause_s = RETRY_S[delivery.tries - 1]
    # Jitter, so that what failed together does not come back together.
    jitter_ms = secrets.randbelow(pause_s * 10 * JITTER_PERCENT_MAX + 1)
    delivery.next_at = now + timedelta(seconds=pause_s, milliseconds=jitter_ms)


def _disable(endpoint: WebhookEndpoint, now: datetime) -> None:
    """No more events for it until its owners enable it; what waited can be replayed then."""
    endpoint.disabled_at = now
    endpoint.save(update_fields=["disabled_at"])
    WebhookDelivery.objects.using(HOUSEKEEPER_ALIAS).filter(
        endpoint_id=endpoint.id, state=DeliveryState.PENDING
    ).update(state=DeliveryState.FAILED)
    assert endpoint.failing_since is not None
    emit(
        endpoint.organization_id,
        "endpoint.disabled",
        {
            "endpoint_id": str(endpoint.id),
            "url": endpoint.url,
            "failing_since": endpoint.failing_since.isoformat(),
        },
        using=HOUSEKEEPER_ALIAS,
    )
    logger.warning("webhook endpoint %s disabled: it failed too long", endpoint.id)
