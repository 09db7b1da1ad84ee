"""Mail leaves in turns and in bounded numbers, and what tenants call themselves makes no links."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.core import mail
from django.test import override_settings

from tenants import facade
from tenants.contracts import InvalidValue
from tenants.events.mail import CLAIM_MAX, send_due_mail
from tenants.models import Mail
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with override_settings(EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend"):
        mail.outbox = []
        yield


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Who mails; nobody else's mail waits."""
    send_all()
    mail.outbox = []
    return make_tenant("acme")


def send_all() -> None:
    """Send what is due."""
    while send_due_mail(datetime.now(UTC)):
        pass


def queue(organization_id: UUID | None, count: int, name: str) -> None:
    """So many mails wait, to `name`-0 and so on."""
    for number in range(count):
        facade.send_mail_later(
            organization_id, f"{name}-{number}@example.com", "sign_in", {"subject": "s"}
        )


def recipients() -> list[str]:
    """To whom something went, in the order it went."""
    return [one.to[0].partition("@")[0] for one in mail.outbox]


def test_a_lost_password_waits_for_no_tenants_mail(acme: Tenant) -> None:
    queue(acme.organization_id, 3 * CLAIM_MAX, "acme")
    queue(None, 1, "person")
    send_due_mail(datetime.now(UTC))

    assert "person-0" in recipients()


def test_a_tenant_with_much_mail_keeps_no_other_waiting(acme: Tenant) -> None:
    globex = make_tenant("globex")
    queue(acme.organization_id, 3 * CLAIM_MAX, "acme")
    queue(globex.organization_id, 1, "globex")
    send_due_mail(datetime.now(UTC))

    assert "globex-0" in recipients()
    assert len(recipients()) == CLAIM_MAX


@override_settings(ORGANIZATION_MAILS_PER_DAY_MAX=3)
def test_an_organization_sends_so_much_in_a_day_and_no_more(acme: Tenant) -> None:
    globex = make_tenant("globex")
    queue(acme.organization_id, 5, "acme")
    queue(globex.organization_id, 1, "globex")
    queue(None, 5, "person")
    send_all()

    assert sum(one.startswith("acme") for one in recipients()) == 3
    assert sum(one.startswith(("globex", "person")) for one in recipients()) == 6
    given_up = Mail.objects.using("housekeeper").filter(
        organization_id=acme.organization_id, sent_at=None
    )
    assert [(one.failed_at is not None, bytes(one.context_sealed)) for one in given_up] == [
        (True, b"")
    ] * 2


@pytest.mark.parametrize(
    "name",
    [
        "URGENT: https://evil.example/unlock",
        "go to www.evil.example",
        "evil.com",
        "evil\u3002com",
        "a\r\nBcc: b",
        "a\u202eb",
    ],
)
def test_an_organization_is_not_called_like_an_address(acme: Tenant, name: str) -> None:
    actor = facade.operator_of(acme.organization_id)
    with pytest.raises(InvalidValue) as caught:
        facade.update_organization(actor, display_name=name)

    assert caught.value.param == "display_name"
    assert facade.read_organization(actor).display_name == "acme"


@pytest.mark.parametrize("name", ["Acme Inc.", "J.R. & Sons, Ltd.", "Zoë's 2.0"])
def test_an_organization_is_called_what_people_call_it(acme: Tenant, name: str) -> None:
    actor = facade.operator_of(acme.organization_id)

    assert facade.update_organization(actor, display_name=name).display_name == name
