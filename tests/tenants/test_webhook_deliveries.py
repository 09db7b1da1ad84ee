"""An event reaches every endpoint that asks for it, signed, until it is taken or given up."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.core import mail
from django.test import override_settings
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tenants import facade
from tenants.contracts import Actor, ActorKind, Permission, PermissionDenied
from tenants.contracts.events import (
    EventKindUnknown,
    TooManyWebhooks,
    WebhookDelivery,
    WebhookNotFound,
    WebhookUrlRefused,
)
from tenants.events.mail import send_due_mail
from tenants.models import Mail, OutboxEvent, WebhookEndpoint
from tenants.webhooks.deliveries import (
    CLAIM_MAX,
    CLAIM_PER_ORGANIZATION_MAX,
    RETRY_S,
    deliver_due,
)
from tenants.webhooks.endpoints import ENDPOINTS_MAX
from tenants.webhooks.fan_out import fan_out
from tenants.webhooks.log import TESTS_PENDING_MAX
from tests.billing.cast import at_once
from tests.leftovers import forget_news
from tests.tenants.cast import Tenant, make_tenant
from tests.tenants.receiver import Received, Receiver, receiving


@pytest.fixture(autouse=True)
def _loopback_open() -> Iterator[None]:
    with override_settings(WEBHOOK_LOOPBACK_ALLOWED=True):
        yield


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where acme's events go."""
    with receiving() as one:
        yield one


@pytest.fixture
def acme(django_database: object) -> Iterator[Tenant]:
    """The tenant to be told; what it leaves waiting is nobody's afterwards."""
    forget_news()
    tenant = quiet(make_tenant("acme"))
    yield tenant
    WebhookEndpoint.objects.using("housekeeper").filter(
        organization_id=tenant.organization_id
    ).delete()


def quiet(tenant: Tenant) -> Tenant:
    """The tenant, once nobody waits any more to hear how it was made."""
    while fan_out():
        pass
    return tenant


def member(tenant: Tenant, *permissions: Permission) -> Actor:
    """Somebody of the tenant who may do this; by default, everything with webhooks."""
    return Actor(
        ActorKind.USER,
        uuid4(),
        tenant.organization_id,
        frozenset(permissions or {Permission.WEBHOOKS_READ, Permission.WEBHOOKS_WRITE}),
    )


def tell(tenant: Tenant, kind: str = "balance.low", amount: str = "0.5") -> UUID:
    """Something happens, and is fanned out."""
    with facade.tenant_scope(tenant.organization_id):
        event_id = facade.emit(tenant.organization_id, kind, {"amount": amount})
    while fan_out():
        pass
    return event_id


def deliver(at: datetime | None = None) -> None:
    """Post all that is due."""
    now = at or datetime.now(UTC)
    while deliver_due(now, loopback_allowed=True):
        pass


def later(seconds: float) -> datetime:
    """So long from now."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def only_delivery(actor: Actor, endpoint_id: UUID) -> WebhookDelivery:
    """The one delivery of an endpoint, with its attempts."""
    [delivery] = facade.webhook_deliveries(actor, endpoint_id, 2)
    return facade.webhook_delivery(actor, delivery.delivery_id)


def verified(received: Received, secret: str) -> dict[str, object]:
    """The payload, as the stock library of the standard accepts it."""
    payload: dict[str, object] = Webhook(secret).verify(received.body, dict(received.headers))
    return payload


def test_an_event_is_posted_signed_and_logged(acme: Tenant, receiver: Receiver) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    event_id = tell(acme)
    deliver()

    [received] = receiver.received
    payload = verified(received, made.secret)
    assert received.headers["webhook-id"] == payload["id"] == f"evt_{event_id.hex}"
    assert (payload["type"], payload["data"]) == ("balance.low", {"amount": "0.5"})
    delivery = only_delivery(member(acme), made.endpoint.endpoint_id)
    assert (delivery.state, delivery.attempts, delivery.next_at) == ("delivered", 1, None)
    [attempt] = delivery.log
    assert (attempt.status_code, attempt.error, attempt.answer_start) == (200, "", "ok")
    told = facade.webhook_payload(member(acme), delivery.delivery_id)
    assert told.encode() == received.body
    deliver(later(10**6))
    assert len(receiver.received) == 1


def test_an_altered_or_old_post_is_not_accepted_by_a_stock_receiver(
    acme: Tenant, receiver: Receiver
) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    tell(acme)
    deliver()
    [received] = receiver.received
    tell(acme)
    deliver(later(-400))
    deliver(later(1))

    altered = Received(received.path, received.headers, received.body.replace(b"0.5", b"0.6"))
    reserialised = Received(
        received.path, received.headers, json.dumps(json.loads(received.body)).encode()
    )
    unsigned = {k: v for k, v in received.headers.items() if k != "webhook-signature"}
    another_secret = "whsec_" + "A" * 44
    for bad, secret in (
        (altered, made.secret),
        (reserialised, made.secret),
        (Received(received.path, unsigned, received.body), made.secret),
        (received, another_secret),
    ):
        with pytest.raises(WebhookVerificationError):
            verified(bad, secret)


def test_addresses_for_mail_are_not_posted(acme: Tenant, receiver: Receiver) -> None:
    facade.create_webhook_endpoint(member(acme), receiver.url)
    with facade.tenant_scope(acme.organization_id):
        data = {"amount": "1", "recipients": ["a@example.com"], "subject_prefix": "x"}
        facade.emit(acme.organization_id, "balance.low", data)
    while fan_out():
        pass
    deliver()

    [received] = receiver.received
    assert json.loads(received.body)["data"] == {"amount": "1"}


def test_only_endpoints_that_ask_for_a_kind_get_it(acme: Tenant, receiver: Receiver) -> None:
    with receiving() as other:
        facade.create_webhook_endpoint(member(acme), receiver.url, ["invoice.issued"])
        facade.create_webhook_endpoint(member(acme), other.url, ["balance.low"])
        tell(acme, "balance.low")
        deliver()

        assert receiver.received == []
        assert len(other.received) == 1


def test_another_tenants_endpoints_hear_nothing_and_are_not_found(
    acme: Tenant, receiver: Receiver
) -> None:
    globex = quiet(make_tenant("globex"))
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    tell(globex)
    tell(acme)
    deliver()

    delivery = only_delivery(member(acme), made.endpoint.endpoint_id)
    assert len(receiver.received) == 1
    assert facade.webhook_endpoints(member(globex)) == []
    for act in (
        lambda: facade.webhook_endpoint(member(globex), made.endpoint.endpoint_id),
        lambda: facade.webhook_deliveries(member(globex), made.endpoint.endpoint_id, 1),
        lambda: facade.rotate_webhook_secret(member(globex), made.endpoint.endpoint_id),
        lambda: facade.delete_webhook_endpoint(member(globex), made.endpoint.endpoint_id),
        lambda: facade.send_test_event(member(globex), made.endpoint.endpoint_id),
        lambda: facade.webhook_delivery(member(globex), delivery.delivery_id),
        lambda: facade.replay_webhook_delivery(member(globex), delivery.delivery_id),
    ):
        with pytest.raises(WebhookNotFound):
            act()


def test_a_failed_post_is_tried_again_for_days_and_then_given_up(
    acme: Tenant, receiver: Receiver
) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    receiver.status, receiver.answer = 500, b"broken"
    tell(acme)
    endpoint = WebhookEndpoint.objects.using("housekeeper")
    at = datetime.now(UTC)
    for pause_s in (*RETRY_S, 0):
        deliver(at)
        # A success of another event in between: the endpoint is not dead.
        endpoint.filter(id=made.endpoint.endpoint_id).update(failing_since=None)
        at += timedelta(seconds=pause_s * 1.11)
    deliver(at + timedelta(days=30))

    delivery = only_delivery(member(acme), made.endpoint.endpoint_id)
    assert (delivery.state, delivery.attempts) == ("failed", len(RETRY_S) + 1)
    assert delivery.log[0].status_code == 500
    assert delivery.log[0].answer_start == "broken"
    assert len(receiver.received) == len(RETRY_S) + 1
    assert sum(RETRY_S) >= 3 * 24 * 3600


def test_a_failed_post_is_not_tried_before_its_time(acme: Tenant, receiver: Receiver) -> None:
    facade.create_webhook_endpoint(member(acme), receiver.url)
    receiver.status = 503
    tell(acme)
    deliver()
    deliver(later(RETRY_S[0] - 2))
    assert len(receiver.received) == 1
    receiver.status = 200
    deliver(later(RETRY_S[0] * 1.2))

    assert len(receiver.received) == 2


def test_an_endpoint_that_failed_for_days_is_disabled_and_its_owners_are_told(
    acme: Tenant, receiver: Receiver
) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    receiver.status = 500
    tell(acme)
    deliver()
    tell(acme)
    deliver(later(3 * 24 * 3600 + 60))
    deliver(later(4 * 24 * 3600))

    shown = facade.webhook_endpoint(member(acme), made.endpoint.endpoint_id)
    assert shown.disabled_at is not None
    tried = len(receiver.received)
    tell(acme)
    deliver(later(5 * 24 * 3600))
    assert len(receiver.received) == tried
    with facade.tenant_scope(acme.organization_id):
        [event] = OutboxEvent.objects.filter(kind="endpoint.disabled")
    assert event.data["endpoint_id"] == str(made.endpoint.endpoint_id)

    receiver.status = 200
    facade.change_webhook_endpoint(member(acme), made.endpoint.endpoint_id, enabled=True)
    [newest, *_] = facade.webhook_deliveries(member(acme), made.endpoint.endpoint_id, 10)
    facade.replay_webhook_delivery(member(acme), newest.delivery_id)
    deliver(later(6 * 24 * 3600))
    again = facade.webhook_delivery(member(acme), newest.delivery_id)
    assert again.state == "delivered"


def test_a_replay_is_the_same_event_again(acme: Tenant, receiver: Receiver) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    tell(acme)
    deliver()
    delivery = only_delivery(member(acme), made.endpoint.endpoint_id)
    facade.replay_webhook_delivery(member(acme), delivery.delivery_id)
    deliver(later(1))

    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert only_delivery(member(acme), made.endpoint.endpoint_id).attempts == 2


def test_a_test_event_goes_to_its_endpoint_alone(acme: Tenant, receiver: Receiver) -> None:
    with receiving() as other:
        made = facade.create_webhook_endpoint(member(acme), receiver.url, ["invoice.issued"])
        facade.create_webhook_endpoint(member(acme), other.url)
        facade.send_test_event(member(acme), made.endpoint.endpoint_id)
        while fan_out():
            pass
        deliver(later(1))

        [received] = receiver.received
        assert verified(received, made.secret)["type"] == "endpoint.test"
        assert other.received == []


def test_while_a_secret_changes_both_verify_and_then_only_the_new_one(
    acme: Tenant, receiver: Receiver
) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    new = facade.rotate_webhook_secret(member(acme), made.endpoint.endpoint_id)
    tell(acme)
    deliver()
    [during] = receiver.received
    WebhookEndpoint.objects.using("housekeeper").filter(id=made.endpoint.endpoint_id).update(
        previous_secret_until=datetime.now(UTC)
    )
    tell(acme)
    deliver(later(1))
    after = receiver.received[1]

    assert verified(during, made.secret) == verified(during, new)
    assert verified(after, new)
    with pytest.raises(WebhookVerificationError):
        verified(after, made.secret)


def test_no_secret_is_stored_readably(acme: Tenant, receiver: Receiver) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    row = WebhookEndpoint.objects.using("housekeeper").get(id=made.endpoint.endpoint_id)

    stored = bytes(row.secret_sealed)
    assert made.secret.startswith("whsec_")
    assert made.secret.removeprefix("whsec_").encode() not in stored
    assert made.secret not in repr(facade.webhook_endpoint(member(acme), row.id))


def test_many_workers_post_each_delivery_once(acme: Tenant, receiver: Receiver) -> None:
    facade.create_webhook_endpoint(member(acme), receiver.url)
    for _ in range(3 * CLAIM_PER_ORGANIZATION_MAX):
        tell(acme)
    now = datetime.now(UTC)
    at_once([lambda: deliver(now) for _ in range(6)])

    ids = [received.headers["webhook-id"] for received in receiver.received]
    assert len(ids) == len(set(ids)) == 3 * CLAIM_PER_ORGANIZATION_MAX


def test_a_tenant_of_many_endpoints_keeps_nobody_waiting(acme: Tenant, receiver: Receiver) -> None:
    with receiving() as other:
        for _ in range(CLAIM_MAX):
            facade.create_webhook_endpoint(member(acme), receiver.url)
        for _ in range(2):
            tell(acme)
        globex = quiet(make_tenant("globex"))
        facade.create_webhook_endpoint(member(globex), other.url)
        tell(globex)
        deliver_due(later(1), loopback_allowed=True)

        assert len(other.received) == 1
        assert len(receiver.received) == CLAIM_PER_ORGANIZATION_MAX


def test_an_endpoint_with_a_backlog_keeps_the_tenants_others_not_waiting(
    acme: Tenant, receiver: Receiver
) -> None:
    facade.create_webhook_endpoint(member(acme), receiver.url)
    for _ in range(CLAIM_PER_ORGANIZATION_MAX + 1):
        tell(acme)
    with receiving() as other:
        facade.create_webhook_endpoint(member(acme), other.url)
        tell(acme)
        deliver_due(later(1), loopback_allowed=True)

        assert len(other.received) == 1


def test_test_events_and_replays_wait_in_bounded_numbers(
    acme: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.webhooks.log.REPLAYED_INTO_PENDING_MAX", TESTS_PENDING_MAX)
    endpoint_id = facade.create_webhook_endpoint(member(acme), receiver.url).endpoint.endpoint_id
    tell(acme)
    deliver()
    old = only_delivery(member(acme), endpoint_id)
    for _ in range(TESTS_PENDING_MAX):
        facade.send_test_event(member(acme), endpoint_id)

    with pytest.raises(TooManyWebhooks):
        facade.send_test_event(member(acme), endpoint_id)
    with pytest.raises(TooManyWebhooks):
        facade.replay_webhook_delivery(member(acme), old.delivery_id)
    assert len(facade.webhook_deliveries(member(acme), endpoint_id, 100)) == TESTS_PENDING_MAX + 1
    deliver(later(1))
    facade.send_test_event(member(acme), endpoint_id)
    facade.replay_webhook_delivery(member(acme), old.delivery_id)
    # What waits is not counted against itself.
    facade.replay_webhook_delivery(member(acme), old.delivery_id)


def test_many_workers_fan_an_event_out_once(acme: Tenant, receiver: Receiver) -> None:
    made = facade.create_webhook_endpoint(member(acme), receiver.url)
    with facade.tenant_scope(acme.organization_id):
        for _ in range(20):
            facade.emit(acme.organization_id, "balance.low", {})
    at_once([fan_out for _ in range(6)])

    deliveries = facade.webhook_deliveries(member(acme), made.endpoint.endpoint_id, 100)
    assert len(deliveries) == 20


def test_who_may_not_write_webhooks_makes_none(acme: Tenant) -> None:
    reader = member(acme, Permission.WEBHOOKS_READ)

    with pytest.raises(PermissionDenied):
        facade.create_webhook_endpoint(reader, "https://example.com/")
    with pytest.raises(PermissionDenied):
        facade.webhook_endpoints(member(acme, Permission.USAGE_READ))


def test_an_endpoint_needs_a_public_url_known_kinds_and_room(acme: Tenant) -> None:
    with pytest.raises(WebhookUrlRefused):
        facade.create_webhook_endpoint(member(acme), "https://10.0.0.1/")
    with pytest.raises(EventKindUnknown):
        facade.create_webhook_endpoint(member(acme), "https://example.com/", ["made.up"])
    for _ in range(ENDPOINTS_MAX):
        facade.create_webhook_endpoint(member(acme), "https://example.com/")
    with pytest.raises(TooManyWebhooks):
        facade.create_webhook_endpoint(member(acme), "https://example.com/")


def test_mail_of_an_event_goes_once_to_those_it_concerns_or_names_of_the_members(
    acme: Tenant,
) -> None:
    from django.contrib.auth import get_user_model

    from tenants.models import Membership

    addresses = {}
    for role in ("owner", "billing", "developer", "viewer"):
        address = f"{role}-{uuid4().hex[:8]}@example.com"
        user = get_user_model().objects.db_manager("housekeeper").create_user(address)
        addresses[role] = address
        Membership.objects.using("housekeeper").create(
            organization_id=acme.organization_id, user_id=user.pk, role=role
        )
    with facade.tenant_scope(acme.organization_id):
        data = {
            "balance_pico": "250000000000",
            "recipients": ["boss@example.com", addresses["viewer"].upper()],
            "subject_prefix": "[prod]\n",
        }
        facade.emit(acme.organization_id, "balance.low", data)
    while fan_out():
        pass
    with override_settings(EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend"):
        mail.outbox = []
        at_once([lambda: send_due_mail(datetime.now(UTC)) for _ in range(4)])
        while send_due_mail(datetime.now(UTC)):  # other tests' mail may come first
            pass
        expected = {addresses["owner"], addresses["billing"], addresses["viewer"]}
        known = {*addresses.values(), "boss@example.com"}
        sent = [one for one in mail.outbox if set(one.to) & known]

    assert sorted(one.to[0] for one in sent) == sorted(expected)
    assert sent[0].subject == "[prod] [acme] The balance is low"
    assert "balance: 0.25\n" in sent[0].body
    assert "viewer" not in sent[0].body.lower()
    rows = Mail.objects.using("housekeeper").filter(organization_id=acme.organization_id)
    assert all(row.sent_at and bytes(row.context_sealed) == b"" for row in rows)
