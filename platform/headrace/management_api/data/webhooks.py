"""Webhook endpoints and their delivery log under `/api/v1/organizations/{id}/webhooks`.

A secret is in the answer that made it and nowhere else. Posts nothing itself: a worker does.
"""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace.management_api.base import TenantView
from headrace.management_api.data.webhook_shapes import (
    DeliveryShown,
    EventKindList,
    WebhookBody,
    WebhookChange,
    WebhookMade,
    WebhookSecret,
    WebhookShown,
)
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import Permission
from tenants.contracts.events import WebhookDelivery, WebhookEndpoint

_READ_AND_WRITE = {"GET": Permission.WEBHOOKS_READ, "POST": Permission.WEBHOOKS_WRITE}


class WebhooksView(TenantView):
    """The organization's endpoints; at most twenty, so one page holds them all."""

    permissions = _READ_AND_WRITE
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(responses=page_shown(WebhookShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """All endpoints, newest first."""
        page = asked_page(request)
        rows = tenants.facade.webhook_endpoints(self.actor)
        if page.ascending:
            rows.reverse()
        if page.after is not None:
            ids = [row.endpoint_id for row in rows]
            rows = rows[ids.index(page.after) + 1 :] if page.after in ids else []
        return Response(page_body(rows[: page.rows_max], page, render_endpoint))

    @extend_schema(request=WebhookBody, responses={201: WebhookMade})
    def post(self, request: Request, organization_id: UUID) -> Response:
        """A new endpoint; its signing secret is in this answer and nowhere else."""
        body = self.body(WebhookBody)
        made = tenants.facade.create_webhook_endpoint(
            self.actor, body["url"], body.get("kinds", ()), body.get("description", "")
        )
        return Response({**render_endpoint(made.endpoint), "secret": made.secret}, status=201)


class WebhookView(TenantView):
    """One endpoint."""

    permissions = {
        "GET": Permission.WEBHOOKS_READ,
        "PATCH": Permission.WEBHOOKS_WRITE,
        "DELETE": Permission.WEBHOOKS_WRITE,
    }
    sensitive: ClassVar[frozenset[str]] = frozenset({"PATCH"})

    @extend_schema(responses=WebhookShown)
    def get(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """The endpoint, without its secret."""
        return Response(render_endpoint(tenants.facade.webhook_endpoint(self.actor, webhook_id)))

    @extend_schema(request=WebhookChange, responses=WebhookShown)
    def patch(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """Change what is given."""
        body = self.body(WebhookChange, partial=True)
        changed = tenants.facade.change_webhook_endpoint(self.actor, webhook_id, **body)
        return Response(render_endpoint(changed))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """Remove it, with its delivery log."""
        tenants.facade.delete_webhook_endpoint(self.actor, webhook_id)
        return Response(status=204)


class WebhookSecretView(TenantView):
    """The secret of an endpoint."""

    permissions = {"POST": Permission.WEBHOOKS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(request=None, responses={201: WebhookSecret})
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """A new secret. For a day deliveries carry signatures of both."""
        secret = tenants.facade.rotate_webhook_secret(self.actor, webhook_id)
        body = {"object": "webhook.secret", "id": str(webhook_id), "secret": secret}
        return Response(body, status=201)


class WebhookTestView(TenantView):
    """Test events of an endpoint."""

    permissions = {"POST": Permission.WEBHOOKS_WRITE}

    @extend_schema(request=None, responses={202: DeliveryShown})
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """Send this endpoint an `endpoint.test` event; the answer is its delivery."""
        delivery = tenants.facade.send_test_event(self.actor, webhook_id)
        return Response(render_delivery(delivery), status=202)


class WebhookDeliveriesView(TenantView):
    """The delivery log of an endpoint."""

    permissions = {"GET": Permission.WEBHOOKS_READ}

    @extend_schema(responses=page_shown(DeliveryShown))
    def get(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        """Deliveries, newest first, without their attempts."""
        page = asked_page(request)
        rows = tenants.facade.webhook_deliveries(
            self.actor, webhook_id, page.rows_max, page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_delivery))


class WebhookDeliveryView(TenantView):
    """One delivery."""

    permissions = {"GET": Permission.WEBHOOKS_READ}

    @extend_schema(responses=DeliveryShown)
    def get(self, request: Request, organization_id: UUID, delivery_id: UUID) -> Response:
        """The delivery with its latest attempts."""
        delivery = tenants.facade.webhook_delivery(self.actor, delivery_id)
        return Response(render_delivery(delivery))


class WebhookReplayView(TenantView):
    """Replays of a delivery."""

    permissions = {"POST": Permission.WEBHOOKS_WRITE}

    @extend_schema(request=None, responses={202: DeliveryShown})
    def post(self, request: Request, organization_id: UUID, delivery_id: UUID) -> Response:
        """Deliver it again, under the same `webhook-id`."""
        delivery = tenants.facade.replay_webhook_delivery(self.actor, delivery_id)
        return Response(render_delivery(delivery), status=202)


class EventKindsView(TenantView):
    """The kinds of events an endpoint may ask for."""

    permissions = {"GET": Permission.WEBHOOKS_READ}

    @extend_schema(responses=EventKindList)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """All kinds."""
        kinds = sorted(tenants.facade.event_kinds().values(), key=lambda kind: kind.name)
        data = [
            {"object": "event_kind", "id": kind.name, "description": kind.description}
            for kind in kinds
        ]
        return Response({"object": "list", "data": data})


def render_endpoint(endpoint: WebhookEndpoint) -> dict[str, Any]:
    """The endpoint as JSON."""
    return {
        "object": "webhook",
        "id": str(endpoint.endpoint_id),
        "url": endpoint.url,
        "description": endpoint.description,
        "kinds": list(endpoint.kinds),
        "enabled": endpoint.disabled_at is None,
        "created_at": endpoint.created_at.isoformat(),
        "failing_since": _moment(endpoint.failing_since),
        "disabled_at": _moment(endpoint.disabled_at),
    }


def render_delivery(delivery: WebhookDelivery) -> dict[str, Any]:
    """The delivery as JSON; `event_id` is what the receiver saw as `webhook-id`."""
    return {
        "object": "webhook.delivery",
        "id": str(delivery.delivery_id),
        "webhook_id": str(delivery.endpoint_id),
        "event_id": f"evt_{delivery.event_id.hex}",
        "kind": delivery.kind,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "created_at": delivery.created_at.isoformat(),
        "next_at": _moment(delivery.next_at),
        "delivered_at": _moment(delivery.delivered_at),
        "log": [
            {
                "attempt": one.attempt,
                "started_at": one.started_at.isoformat(),
                "latency_ms": one.latency_ms,
                "status_code": one.status_code,
                "error": one.error or None,
                "answer_start": one.answer_start,
            }
            for one in delivery.log
        ],
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
