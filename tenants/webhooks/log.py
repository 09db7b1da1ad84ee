"""What became of an organization's events: deliveries and their attempts, replays, test events.

Posts nothing: a replay only makes a delivery due again. Called by the management API with an actor.
"""

from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import ROWS_MAX, Actor, Permission
from tenants.contracts.events import (
    TooManyWebhooks,
    WebhookAttempt,
    WebhookDelivery,
    WebhookNotFound,
)
from tenants.models import DeliveryState, OutboxEvent, WebhookEndpoint
from tenants.models import WebhookAttempt as AttemptRow
from tenants.models import WebhookDelivery as Row
from tenants.scope import tenant_scope
from tenants.webhooks.deliveries import payload

ATTEMPTS_SHOWN_MAX = 100
TEST_KIND = "endpoint.test"
TESTS_PENDING_MAX = 5
"""Of one endpoint: another is sent when one of these is through."""
REPLAYED_INTO_PENDING_MAX = 100
"""An endpoint with so many deliveries waiting is given no old ones again."""


def webhook_deliveries(
    actor: Actor,
    endpoint_id: UUID,
    rows_max: int,
    after: UUID | None = None,
    *,
    ascending: bool = False,
) -> list[WebhookDelivery]:
    """Up to `rows_max` deliveries to an endpoint, newest first, without their attempts.

    Raises PermissionDenied or WebhookNotFound.
    """
    actor.require(Permission.WEBHOOKS_READ)
    assert rows_max <= ROWS_MAX, "a page is bounded"
    with tenant_scope(actor.organization_id):
        if not WebhookEndpoint.objects.filter(id=endpoint_id).exists():
            raise WebhookNotFound("no such webhook endpoint")
        rows = Row.objects.filter(endpoint_id=endpoint_id).select_related("event")
        if after is not None:
            rows = rows.filter(id__gt=after) if ascending else rows.filter(id__lt=after)
        return [_shown(row) for row in rows.order_by("id" if ascending else "-id")[:rows_max]]


def webhook_delivery(actor: Actor, delivery_id: UUID) -> WebhookDelivery:
    """One delivery with its latest attempts; raises PermissionDenied or WebhookNotFound."""
    actor.require(Permission.WEBHOOKS_READ)
    with tenant_scope(actor.organization_id):
        row = _find(delivery_id)
        attempts = AttemptRow.objects.filter(delivery_id=row.id).order_by("-id")
        return _shown(row, list(attempts[:ATTEMPTS_SHOWN_MAX]))


def webhook_payload(actor: Actor, delivery_id: UUID) -> str:
    """The JSON that a delivery posts, to the last character; raises as `webhook_delivery` does."""
    actor.require(Permission.WEBHOOKS_READ)
    with tenant_scope(actor.organization_id):
        event = _find(delivery_id).event
    return payload(event.id, event.kind, event.data, event.created_at).decode()


def replay_webhook_delivery(actor: Actor, delivery_id: UUID) -> WebhookDelivery:
    """Make a delivery due again, with all its tries before it; its `webhook-id` stays the same.

    Raises PermissionDenied, WebhookNotFound, and TooManyWebhooks where many wait already.
    """
    actor.require(Permission.WEBHOOKS_WRITE)
    with tenant_scope(actor.organization_id):
        row = _find(delivery_id)
        others = _pending(row.endpoint_id).exclude(id=row.id)
        if others.count() >= REPLAYED_INTO_PENDING_MAX:
            raise TooManyWebhooks(f"{REPLAYED_INTO_PENDING_MAX} deliveries wait already")
        Row.objects.filter(id=row.id).update(state=DeliveryState.PENDING, tries=0, next_at=Now())
        record_audit(actor, "webhook.replayed", "webhook_delivery", str(row.id))
        return _shown(_find(delivery_id))


def send_test_event(actor: Actor, endpoint_id: UUID) -> WebhookDelivery:
    """An `endpoint.test` event on its way to this endpoint alone, whatever kinds it asks for.

    Raises PermissionDenied, WebhookNotFound, and TooManyWebhooks while others are on their way.
    """
    actor.require(Permission.WEBHOOKS_WRITE)
    with tenant_scope(actor.organization_id):
        if _pending(endpoint_id).filter(event__kind=TEST_KIND).count() >= TESTS_PENDING_MAX:
            raise TooManyWebhooks(f"{TESTS_PENDING_MAX} test events wait already")
        event = OutboxEvent.objects.create(
            id=uuid7(),
            organization_id=actor.organization_id,
            kind=TEST_KIND,
            data={"endpoint_id": str(endpoint_id)},
            # It goes to nobody else.
            fanned_out_at=Now(),
        )
        row = Row.objects.create(
            id=uuid7(),
            organization_id=actor.organization_id,
            endpoint_id=endpoint_id,
            event_id=event.id,
        )
        record_audit(actor, "webhook.tested", "webhook", str(endpoint_id))
        return _shown(_find(row.id))


def _pending(endpoint_id: UUID) -> QuerySet[Row]:
    """What waits for an endpoint, which is locked: those who ask at once count one another's."""
    locked = WebhookEndpoint.objects.select_for_update(no_key=True).filter(id=endpoint_id)
    if locked.first() is None:
        raise WebhookNotFound("no such webhook endpoint")
    return Row.objects.filter(endpoint_id=endpoint_id, state=DeliveryState.PENDING)


def _find(delivery_id: UUID) -> Row:
    row = Row.objects.select_related("event").filter(id=delivery_id).first()
    if row is None:
        raise WebhookNotFound("no such webhook delivery")
    return row


def _shown(row: Row, attempts: list[AttemptRow] | None = None) -> WebhookDelivery:
    return WebhookDelivery(
        delivery_id=row.id,
        endpoint_id=row.endpoint_id,
        event_id=row.event_id,
        kind=row.event.kind,
        state=row.state,
        attempts=row.attempts,
        created_at=row.created_at,
        next_at=row.next_at if row.state == DeliveryState.PENDING else None,
        delivered_at=row.delivered_at,
        log=tuple(
            WebhookAttempt(
                attempt=one.attempt,
                started_at=one.started_at,
                latency_ms=one.latency_ms,
                status_code=one.status_code,
                error=one.error,
                answer_start=one.answer_start,
            )
            for one in attempts or ()
        ),
    )
