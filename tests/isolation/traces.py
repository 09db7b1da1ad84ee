"""A row in each table of events and retention: the isolation tests need something to see."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

from billing import facade as billing
from billing.contracts import ServiceTier
from tenants import facade
from tenants.contracts import Role
from tenants.contracts.retention import IdempotencyScope
from tenants.models import WebhookAttempt
from tenants.retention.exports import write_due_export
from tenants.webhooks.fan_out import fan_out
from tests.billing.cast import make_offer
from tests.headrace.door import new_user
from tests.isolation.bulk_traces import leave_bulk_work


def leave_prices(organization_id: UUID) -> None:
    """An alias, a price of the tenant's own, and usage that it corrected."""
    actor = facade.operator_of(organization_id)
    model = make_offer("served", 1, 1, 1)
    billing.create_alias(actor, "gpt-4o-mini", model)
    billing.set_price(model, ServiceTier.INTERACTIVE, "input", 2, organization_id=organization_id)
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    [moved] = billing.reprice(
        model, now - hour, now + hour, "a trace", "test", organization_id=organization_id
    )
    assert moved.events


def leave_traces(organization_id: UUID, project_id: UUID) -> None:
    """People, events, a webhook with its deliveries, mail, answers, bulk work, an export, an
    erasure."""
    leave_bulk_work(organization_id, project_id)
    actor = facade.operator_of(organization_id)
    made = facade.create_webhook_endpoint(actor, "https://example.com/hook")
    sent = facade.send_test_event(actor, made.endpoint.endpoint_id)
    WebhookAttempt.objects.using("housekeeper").create(
        id=uuid7(),
        organization_id=organization_id,
        delivery_id=sent.delivery_id,
        attempt=1,
        started_at=datetime.now(UTC),
        latency_ms=1,
    )
    with facade.tenant_scope(organization_id):
        facade.send_mail_later(organization_id, "someone@example.com", "sign_in", {})
    place = IdempotencyScope(organization_id, project_id, "/v1/chat/completions", "k")
    facade.claim_idempotency_key(place, b"h" * 32)
    facade.keep_exchange(organization_id, project_id, uuid4(), b"prompt", b"answer", 1)
    facade.request_export(actor)
    while fan_out() or write_due_export(datetime.now(UTC)):
        pass
    facade.invite(actor, "someone@example.com", Role.VIEWER)
    facade.create_service_account(actor, project_id, "ci")
    facade.add_member(organization_id, new_user(), Role.OWNER)
    facade.request_erasure(actor)
