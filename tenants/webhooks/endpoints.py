"""Webhook endpoints of an organization: made, changed, given new secrets, listed, removed.

Posts nothing. Called by the management API with an actor; each change is in the audit log. A
secret leaves here once, in the answer that made it.
"""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import Actor, Permission
from tenants.contracts.events import (
    EventKindUnknown,
    NewWebhookEndpoint,
    TooManyWebhooks,
    WebhookEndpoint,
    WebhookNotFound,
)
from tenants.events.kinds import event_kinds
from tenants.models import WebhookEndpoint as Row
from tenants.scope import APP_ALIAS, tenant_scope
from tenants.sealing import Purpose, seal
from tenants.webhooks.addresses import take_apart
from tenants.webhooks.signing import new_secret

ENDPOINTS_MAX = 20
"""Of one organization: each event may become as many deliveries."""
SECRET_GRACE = timedelta(hours=24)
"""How long deliveries are signed with the old secret too after a rotation."""


def create_webhook_endpoint(
    actor: Actor, url: str, kinds: Collection[str] = (), description: str = ""
) -> NewWebhookEndpoint:
    """A new endpoint, enabled; no `kinds` asks for all of them.

    Raises PermissionDenied, WebhookUrlRefused, EventKindUnknown or TooManyWebhooks.
    """
    actor.require(Permission.WEBHOOKS_WRITE)
    target = take_apart(url, loopback_allowed=settings.WEBHOOK_LOOPBACK_ALLOWED)
    wanted = _known(kinds)
    secret = new_secret()
    with tenant_scope(actor.organization_id):
        _one_at_a_time(actor.organization_id)
        if Row.objects.count() >= ENDPOINTS_MAX:
            raise TooManyWebhooks(f"an organization has at most {ENDPOINTS_MAX} endpoints")
        row = Row.objects.create(
            id=uuid7(),
            organization_id=actor.organization_id,
            url=url,
            description=description,
            kinds=wanted,
            secret_sealed=seal(secret.encode(), Purpose.WEBHOOK_SECRET),
        )
        # Only the host: a path is often a secret of the receiver's.
        record_audit(actor, "webhook.created", "webhook", row.id, {"host": target.host})
    return NewWebhookEndpoint(_shown(row), secret)


def webhook_endpoints(actor: Actor) -> list[WebhookEndpoint]:
    """All of the organization's, newest first; at most ENDPOINTS_MAX."""
    actor.require(Permission.WEBHOOKS_READ)
    with tenant_scope(actor.organization_id):
        return [_shown(row) for row in Row.objects.order_by("-id")]


def webhook_endpoint(actor: Actor, endpoint_id: UUID) -> WebhookEndpoint:
    """One of the organization's; raises WebhookNotFound."""
    actor.require(Permission.WEBHOOKS_READ)
    with tenant_scope(actor.organization_id):
        return _shown(_find(Row.objects.all(), endpoint_id))


def change_webhook_endpoint(
    actor: Actor,
    endpoint_id: UUID,
    *,
    url: str | None = None,
    kinds: Collection[str] | None = None,
    description: str | None = None,
    enabled: bool | None = None,
) -> WebhookEndpoint:
    """Change what is given. Enabling forgets how long the endpoint failed.

    Raises PermissionDenied, WebhookNotFound, WebhookUrlRefused or EventKindUnknown.
    """
    actor.require(Permission.WEBHOOKS_WRITE)
    if url is not None:
        take_apart(url, loopback_allowed=settings.WEBHOOK_LOOPBACK_ALLOWED)
    wanted = None if kinds is None else _known(kinds)
    with tenant_scope(actor.organization_id):
        row = _find(Row.objects.select_for_update(), endpoint_id)
        row.url = row.url if url is None else url
        row.kinds = row.kinds if wanted is None else wanted
        row.description = row.description if description is None else description
        if enabled is not None:
            row.disabled_at = None if enabled else (row.disabled_at or timezone.now())
            row.failing_since = None if enabled else row.failing_since
        row.save(update_fields=["url", "kinds", "description", "disabled_at", "failing_since"])
        record_audit(actor, "webhook.changed", "webhook", row.id)
    return _shown(row)


def rotate_webhook_secret(actor: Actor, endpoint_id: UUID) -> str:
    """A new secret; for SECRET_GRACE deliveries carry a signature of the old one too.

    Rotating again within the grace ends the first old secret early. Raises PermissionDenied or
    WebhookNotFound.
    """
    actor.require(Permission.WEBHOOKS_WRITE)
    secret = new_secret()
    with tenant_scope(actor.organization_id):
        row = _find(Row.objects.select_for_update(), endpoint_id)
        row.previous_secret_sealed = row.secret_sealed
        row.previous_secret_until = Now() + SECRET_GRACE
        row.secret_sealed = seal(secret.encode(), Purpose.WEBHOOK_SECRET)
        row.save(update_fields=["previous_secret_sealed", "previous_secret_until", "secret_sealed"])
        record_audit(actor, "webhook.secret_rotated", "webhook", row.id)
    return secret


def delete_webhook_endpoint(actor: Actor, endpoint_id: UUID) -> None:
    """Gone, with its deliveries and their log; raises PermissionDenied or WebhookNotFound."""
    actor.require(Permission.WEBHOOKS_WRITE)
    with tenant_scope(actor.organization_id):
        row = _find(Row.objects.select_for_update(), endpoint_id)
        row.delete()
        record_audit(actor, "webhook.deleted", "webhook", endpoint_id)


def _one_at_a_time(organization_id: UUID) -> None:
    """Two endpoints that are made at once must not both be the last; held to the commit."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"webhooks {organization_id}"]
        )


def _find(rows: QuerySet[Row], endpoint_id: UUID) -> Row:
    row = rows.filter(id=endpoint_id).first()
    if row is None:
        raise WebhookNotFound("no such webhook endpoint")
    return row


def _known(kinds: Collection[str]) -> list[str]:
    for kind in kinds:
        if kind not in event_kinds():
            raise EventKindUnknown(kind)
    return sorted(set(kinds))


def _shown(row: Row) -> WebhookEndpoint:
    return WebhookEndpoint(
        endpoint_id=row.id,
        url=row.url,
        description=row.description,
        kinds=tuple(row.kinds),
        created_at=row.created_at,
        failing_since=row.failing_since,
        disabled_at=row.disabled_at,
    )
