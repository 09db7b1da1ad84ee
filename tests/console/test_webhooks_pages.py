"""Webhooks on pages: a secret is shown once, events arrive signed, their log is told, replayed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from uuid import uuid4

import httpx
import pytest
from django.test import override_settings
from standardwebhooks.webhooks import Webhook

import tenants.facade
from tenants.contracts import Role
from tenants.contracts.events import WebhookEndpoint
from tenants.models import WebhookEndpoint as EndpointRow
from tenants.webhooks.deliveries import deliver_due
from tests.headrace.door import Door, member_of
from tests.tenants.cast import Tenant, make_tenant
from tests.tenants.receiver import Receiver, receiving

TAGS = re.compile(r"<[^>]*>")
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


@dataclass(frozen=True)
class Acme:
    """A tenant and its owner at the door."""

    tenant: Tenant
    slug: str
    owner: Door

    def page(self, path: str, status: int = 200, door: Door | None = None) -> httpx.Response:
        """A page of theirs."""
        answer = (door or self.owner).get(f"/console/{self.slug}/{path}")
        assert answer.status_code == status, answer.text
        return answer

    def send(self, path: str, do: str, **fields: str | list[str]) -> httpx.Response:
        """A form of theirs."""
        return self.owner.post(f"/console/{self.slug}/{path}", data={"do": do, **fields})

    @property
    def endpoints(self) -> list[WebhookEndpoint]:
        """As they are stored."""
        actor = tenants.facade.operator_of(self.tenant.organization_id)
        return tenants.facade.webhook_endpoints(actor)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where acme's events go."""
    with receiving() as one:
        yield one


@pytest.fixture
def acme(django_database: object) -> Iterator[Acme]:
    """The tenant to be told; what it leaves waiting is nobody's afterwards."""
    tenant = make_tenant("acme")
    actor = tenants.facade.operator_of(tenant.organization_id)
    slug = tenants.facade.read_organization(actor).slug
    with override_settings(WEBHOOK_LOOPBACK_ALLOWED=True):
        yield Acme(tenant, slug, member_of(tenant.organization_id, Role.OWNER))
    EndpointRow.objects.using("housekeeper").filter(organization_id=tenant.organization_id).delete()


def words(answer: httpx.Response) -> str:
    """What a page says, in one line."""
    return " ".join(unescape(TAGS.sub(" ", answer.text)).split())


def test_the_empty_page_teaches_and_lists_all_kinds(acme: Acme) -> None:
    page = acme.page("webhooks")

    assert "No endpoints yet" in words(page)
    for name, kind in tenants.facade.event_kinds().items():
        assert f"{name} {kind.description}" in words(page)


def test_an_endpoint_is_made_tested_read_and_replayed(acme: Acme, receiver: Receiver) -> None:
    made = acme.send("webhooks/new", "create", url=receiver.url, description="Ledger")
    [secret] = set(SECRET.findall(made.text))
    [endpoint] = acme.endpoints
    path = f"webhooks/{endpoint.endpoint_id}"
    tested = acme.send(path, "test")
    delivery_path = tested.headers["location"].removeprefix(f"/console/{acme.slug}/")
    waiting = acme.page(delivery_path)
    deliver_due(datetime.now(UTC), loopback_allowed=True)
    [received] = receiver.received
    told = acme.page(delivery_path)
    replayed = acme.send(delivery_path, "replay")
    deliver_due(datetime.now(UTC), loopback_allowed=True)

    assert (made.status_code, tested.status_code, replayed.status_code) == (200, 303, 303)
    assert made.headers["cache-control"] == "no-store"
    assert Webhook(secret).verify(received.body, dict(received.headers))["type"] == "endpoint.test"
    assert "not tried yet" in words(waiting)
    assert "delivered" in words(told)
    assert received.body.decode() in unescape(told.text)
    assert len(receiver.received) == 2
    assert "Ledger" in words(acme.page("webhooks"))
    assert "endpoint.test" in words(acme.page(path))
    for shown in ("webhooks", path, f"{path}/edit", delivery_path):
        assert secret not in acme.page(shown).text


def test_what_a_receiver_answered_is_told(acme: Acme, receiver: Receiver) -> None:
    receiver.status = 500
    acme.send("webhooks/new", "create", url=receiver.url)
    [endpoint] = acme.endpoints
    tested = acme.send(f"webhooks/{endpoint.endpoint_id}", "test")
    deliver_due(datetime.now(UTC), loopback_allowed=True)

    page = acme.owner.get(tested.headers["location"])

    assert ">500</span>" in page.text
    assert "next try" in words(page)
    assert "It has failed since" in words(acme.page(f"webhooks/{endpoint.endpoint_id}"))


def test_a_rotated_secret_is_another_and_is_shown_once(acme: Acme) -> None:
    made = acme.send("webhooks/new", "create", url="https://hooks.example.com/in")
    [endpoint] = acme.endpoints
    rotated = acme.send(f"webhooks/{endpoint.endpoint_id}/rotate", "rotate")

    [before], [after] = (set(SECRET.findall(one.text)) for one in (made, rotated))
    assert before != after
    assert rotated.headers["cache-control"] == "no-store"
    assert after not in acme.page(f"webhooks/{endpoint.endpoint_id}").text


def test_an_endpoint_is_changed_disabled_enabled_and_deleted(acme: Acme) -> None:
    kinds = ["balance.low", "invoice.issued"]
    acme.send("webhooks/new", "create", url="https://hooks.example.com/in", kinds=kinds)
    [made] = acme.endpoints
    path = f"webhooks/{made.endpoint_id}"

    acme.send(f"{path}/edit", "save", url="https://hooks.example.com/b", kinds=["balance.low"])
    [changed] = acme.endpoints
    acme.send(path, "disable")
    [disabled] = acme.endpoints
    page = acme.page(path)
    acme.send(path, "enable")
    [enabled] = acme.endpoints
    acme.send(path, "delete")

    assert sorted(made.kinds) == kinds
    assert (changed.url, list(changed.kinds)) == ("https://hooks.example.com/b", ["balance.low"])
    assert "Disabled since" in words(page)
    assert disabled.disabled_at is not None
    assert enabled.disabled_at is None
    assert acme.endpoints == []
    acme.page(path, status=404)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"url": ""}, "url"),
        ({"url": "not a url"}, "url"),
        ({"url": "https://169.254.169.254/x"}, "url"),
        ({"url": "https://hooks.example.com/", "kinds": "no.such"}, "kinds"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused_beside_its_field(
    acme: Acme, fields: dict[str, str], at_fault: str
) -> None:
    answer = acme.send("webhooks/new", "create", **fields)

    assert answer.status_code == 422
    assert re.search(rf'name="{at_fault}"[^>]*aria-invalid="true"', answer.text) or (
        at_fault == "kinds" and "errorlist" in answer.text
    )
    assert acme.endpoints == []


def test_test_events_are_bounded_and_that_is_said(acme: Acme) -> None:
    acme.send("webhooks/new", "create", url="https://hooks.example.com/in")
    [endpoint] = acme.endpoints
    for _ in range(5):
        acme.send(f"webhooks/{endpoint.endpoint_id}", "test")

    one_more = acme.send(f"webhooks/{endpoint.endpoint_id}", "test")

    assert one_more.status_code == 303
    page = acme.owner.get(one_more.headers["location"])
    assert "No test event was sent: 5 test events wait already" in words(page)


def test_a_developer_reads_and_is_offered_no_change(acme: Acme) -> None:
    acme.send("webhooks/new", "create", url="https://hooks.example.com/in")
    [endpoint] = acme.endpoints
    developer = member_of(acme.tenant.organization_id, Role.DEVELOPER)

    page = acme.page(f"webhooks/{endpoint.endpoint_id}", door=developer)

    assert "<form" not in page.text.split('<main id="content"')[1]
    acme.page("webhooks/new", status=403, door=developer)
    acme.page(f"webhooks/{uuid4()}", status=404, door=developer)


def test_an_old_session_ends_an_endpoint_and_does_not_open_it_again(acme: Acme) -> None:
    made = acme.send("webhooks/new", "create", url="https://hooks.example.com/acme")
    assert made.status_code == 200
    (endpoint,) = acme.endpoints
    path = f"/console/{acme.slug}/webhooks/{endpoint.endpoint_id}"
    old = member_of(acme.tenant.organization_id, Role.OWNER, seconds_ago=3600)

    assert old.post(path, data={"do": "disable"}).headers["location"] == path
    opened = old.post(path, data={"do": "enable"})

    assert opened.headers["location"].startswith("/accounts/reauthenticate/?next=")
    assert acme.endpoints[0].disabled_at is not None
