"""Rows of webhooks, their deliveries, exports, deletion and kept prompts."""

from datetime import UTC, datetime
from uuid import uuid4

import tenants.facade
from headrace.gateway.request_ids import public_request_id
from tenants.facade import keep_exchange
from tenants.models import Export
from tenants.retention.exports import write_due_export
from tests.isolation.matrix import (
    TENANT,
    Act,
    Arguments,
    Json,
    Row,
    T,
)
from tests.isolation.sides import Side


def webhook(side: Side) -> Arguments:
    """An endpoint; the ones before it go, for a side may have twenty."""
    for earlier in tenants.facade.webhook_endpoints(side.actor):
        tenants.facade.delete_webhook_endpoint(side.actor, earlier.endpoint_id)
    made = tenants.facade.create_webhook_endpoint(side.actor, "https://hooks.example.com/in")
    return {"webhook_id": made.endpoint.endpoint_id}


def deleted_webhook(side: Side) -> Arguments:
    """An endpoint that was removed."""
    arguments = webhook(side)
    tenants.facade.delete_webhook_endpoint(side.actor, arguments["webhook_id"])
    return arguments


def delivery(side: Side) -> Arguments:
    """A delivery to an endpoint of its own."""
    sent = tenants.facade.send_test_event(side.actor, webhook(side)["webhook_id"])
    return {"delivery_id": sent.delivery_id}


def deleted_delivery(side: Side) -> Arguments:
    """A delivery that went with its endpoint."""
    to = webhook(side)
    sent = tenants.facade.send_test_event(side.actor, to["webhook_id"])
    tenants.facade.delete_webhook_endpoint(side.actor, to["webhook_id"])
    return {"delivery_id": sent.delivery_id}


WEBHOOK_ROWS = {
    T + "event_kinds": Row(TENANT, {"GET": Act()}),
    T + "webhooks": Row(
        TENANT,
        {"GET": Act(), "POST": Act({"url": "https://hooks.example.com/new"}, 201)},
    ),
    T + "webhooks/<uuid:webhook_id>": Row(
        TENANT,
        {"GET": Act(), "PATCH": Act({"enabled": False}), "DELETE": Act(status=204)},
        own=webhook,
        deleted=deleted_webhook,
    ),
    T + "webhooks/<uuid:webhook_id>/secret": Row(
        TENANT, {"POST": Act(status=201)}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhooks/<uuid:webhook_id>/test": Row(
        TENANT, {"POST": Act(status=202)}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhooks/<uuid:webhook_id>/deliveries": Row(
        TENANT, {"GET": Act()}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhook_deliveries/<uuid:delivery_id>": Row(
        TENANT, {"GET": Act()}, own=delivery, deleted=deleted_delivery
    ),
    T + "webhook_deliveries/<uuid:delivery_id>/replay": Row(
        TENANT, {"POST": Act(status=202)}, own=delivery, deleted=deleted_delivery
    ),
}


def exports_written(_side: Side, _arguments: Arguments) -> Json:
    """No body, once no export is pending."""
    while write_due_export(datetime.now(UTC)):
        pass
    return {}


def export(side: Side) -> Arguments:
    """An export that is ready."""
    exports_written(side, {})
    asked = tenants.facade.request_export(side.actor)
    exports_written(side, {})
    return {"export_id": asked.export_id}


def deleted_export(side: Side) -> Arguments:
    """An export that has expired."""
    arguments = export(side)
    Export.objects.using("housekeeper").filter(id=arguments["export_id"]).update(
        expires_at=datetime.now(UTC)
    )
    return arguments


def kept_request(side: Side) -> Arguments:
    """A request whose prompt is kept."""
    request_id = uuid4()
    keep_exchange(side.organization_id, side.project_id, request_id, b"{}", b"{}", 1)
    return {"request_id": public_request_id(request_id)}


def forgotten_request(side: Side) -> Arguments:
    """A request whose prompt was kept until now."""
    request_id = uuid4()
    keep_exchange(side.organization_id, side.project_id, request_id, b"{}", b"{}", 0)
    return {"request_id": public_request_id(request_id)}


RETENTION_ROWS = {
    T + "exports": Row(TENANT, {"GET": Act(), "POST": Act(exports_written, 202)}),
    T + "exports/<uuid:export_id>": Row(TENANT, {"GET": Act()}, own=export, deleted=deleted_export),
    T + "exports/<uuid:export_id>/content": Row(
        TENANT, {"GET": Act()}, own=export, deleted=deleted_export
    ),
    T + "requests/<str:request_id>/exchange": Row(
        TENANT, {"GET": Act()}, own=kept_request, deleted=forgotten_request
    ),
    T + "deletion": Row(TENANT, {"POST": Act(status=201)}),
    # The right token would end the side; tests/headrace/test_erasure.py gives it.
    T + "deletion/confirmation": Row(
        TENANT, {"POST": Act({"token": "wrong", "slug": "wrong"}, 400)}
    ),
}
