"""What an operator sees of limits that are met, and of what waits for workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID, uuid4

import pytest
from django.db import connections
from django.test import override_settings

import billing.facade
import tenants.facade
from billing.contracts import UsageCounts
from headrace.errors import ApiError
from headrace.gateway.idempotency import claimed
from headrace.telemetry.backlogs import BacklogCollector
from headrace.telemetry.metrics import REGISTRY
from tenants.contracts import Actor
from tenants.contracts.retention import (
    IdempotencyBodyDiffers,
    IdempotencyRunning,
    IdempotencyScope,
)
from tenants.facade import IdempotencyClaim, emit, operator_of, tenant_scope
from tenants.tasks import deliver_webhooks
from tests.billing import cast
from tests.headrace.door import Door, new_user
from tests.house import free_port
from tests.leftovers import forget_news
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """An organization, with nothing left in the outbox."""
    tenant = make_tenant("acme")
    forget_news()
    return tenant


@pytest.fixture
def actor(acme: Tenant) -> Actor:
    """Somebody who may do everything in it."""
    return operator_of(acme.organization_id)


def gauges() -> dict[str, float]:
    return {
        sample.name.removeprefix("headrace_"): sample.value
        for family in BacklogCollector().collect()
        for sample in family.samples
    }


@contextmanager
def one_more(name: str, **labels: str) -> Iterator[None]:
    """Inside, this counter goes up by one."""

    def value() -> float:
        return REGISTRY.get_sample_value(f"headrace_{name}_total", labels) or 0.0

    before = value()
    yield
    assert value() == before + 1


def run_as_housekeeper(sql: str, *values: UUID | datetime) -> None:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(sql, values)


def test_an_event_waits_until_it_is_fanned_out_and_then_its_delivery(actor: Actor) -> None:
    before = gauges()
    with override_settings(WEBHOOK_LOOPBACK_ALLOWED=True):
        made = tenants.facade.create_webhook_endpoint(actor, f"http://127.0.0.1:{free_port()}/")
    with tenant_scope(actor.organization_id):
        emit(actor.organization_id, "balance.low", {"balance": "1"})
    waiting = gauges()
    tenants.facade.send_test_event(actor, made.endpoint.endpoint_id)
    due = gauges()
    deliver_webhooks()
    after = gauges()

    assert before["outbox_lag_seconds"] == 0
    assert waiting["outbox_lag_seconds"] > 0
    # Other tests' deliveries come due meanwhile, and go.
    assert due["webhook_deliveries_due"] > before["webhook_deliveries_due"]
    assert due["webhook_delivery_lag_seconds"] > 0
    assert after["outbox_lag_seconds"] == 0
    assert after["webhook_deliveries_due"] < due["webhook_deliveries_due"]


def test_a_disabled_endpoint_is_seen(actor: Actor) -> None:
    before = gauges()["webhook_endpoints_disabled"]
    with override_settings(WEBHOOK_LOOPBACK_ALLOWED=True):
        made = tenants.facade.create_webhook_endpoint(actor, f"http://127.0.0.1:{free_port()}/")
    run_as_housekeeper(
        "UPDATE tenants_webhook_endpoint SET disabled_at = now() WHERE id = %s",
        made.endpoint.endpoint_id,
    )

    assert gauges()["webhook_endpoints_disabled"] == before + 1


def test_exports_and_mail_that_wait_are_seen(actor: Actor) -> None:
    before = gauges()["exports_waiting"]
    tenants.facade.request_export(actor)
    tenants.facade.send_mail_later(None, f"{uuid4().hex}@example.com", "sign_in", {})
    after = gauges()

    assert after["exports_waiting"] == before + 1
    assert after["export_lag_seconds"] > 0
    assert after["mail_lag_seconds"] > 0


def test_usage_waits_for_the_rollups(django_database: object) -> None:
    billing.facade.roll_up()
    before = gauges()["rollup_queue_events"]
    request = cast.make_tenant().held()
    billing.facade.settle([cast.used(request, UsageCounts(60, 0, 10))])
    queued = gauges()["rollup_queue_events"]
    billing.facade.roll_up()

    assert (before, queued, gauges()["rollup_queue_events"]) == (0, 1, 0)


def test_an_hour_that_stripe_was_not_told_is_late(acme: Tenant) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=30)
    export_id = uuid4()
    run_as_housekeeper(
        "INSERT INTO billing_stripe_export"
        " (id, organization_id, hour, model, token_class, sequence, tokens)"
        " VALUES (%s, %s, %s, 'm', 'input', 1, 1)",
        export_id,
        acme.organization_id,
        hour,
    )
    late = gauges()["stripe_export_late_hours"]
    run_as_housekeeper(
        "UPDATE billing_stripe_export SET state = 'delivered', closed_at = now() WHERE id = %s",
        export_id,
    )

    told = gauges()["stripe_export_late_hours"]
    # Nothing was used in that hour: the books would not agree with it.
    with tenant_scope(acme.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute("DELETE FROM billing_stripe_export WHERE id = %s", [export_id])

    assert late >= 30
    assert told < late


def test_a_limit_of_numbers_is_counted_where_it_is_met(django_database: object) -> None:
    door = Door().sign_in(new_user())
    none_more = override_settings(ORGANIZATIONS_PER_USER_MAX=0)
    with none_more, one_more("limit_hits", limit="organizations_per_user"):
        answer = door.post("/api/v1/organizations", json={"display_name": "One too many"})

    assert answer.status_code == 409


def test_repetitions_that_are_not_answered_are_counted_by_reason(acme: Tenant) -> None:
    place = IdempotencyScope(acme.organization_id, acme.project_id, "/v1/x", uuid4().hex)
    first, second = (sha256(body).digest() for body in (b"a", b"b"))
    claim = claimed(place, first)
    assert isinstance(claim, IdempotencyClaim)

    def refused(reason: str, error: type[Exception], repeat: Callable[[], object]) -> None:
        with one_more("idempotency_conflicts", reason=reason), pytest.raises(error):
            repeat()

    refused("running", IdempotencyRunning, lambda: claimed(place, first))
    refused("body_differs", IdempotencyBodyDiffers, lambda: claimed(place, second))
    tenants.facade.store_idempotent_answer(claim, 200, [], None)
    refused("answer_not_kept", ApiError, lambda: claimed(place, first))
