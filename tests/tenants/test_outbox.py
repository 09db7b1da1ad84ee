"""An event is recorded with its cause or not at all, for its own tenant only."""

from contextlib import suppress

import pytest
from django.db import ProgrammingError, connections

from tenants import facade
from tenants.contracts import ScopeMissing
from tenants.models import Mail, OutboxEvent
from tests.tenants.cast import Tenant, make_tenant


class CauseFailed(Exception):
    """What was to be told of did not happen."""


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant to be told."""
    return make_tenant("acme")


@pytest.fixture
def globex(django_database: object) -> Tenant:
    """Another, who must not hear of it."""
    return make_tenant("globex")


def test_an_event_is_recorded_in_the_transaction_of_its_cause(acme: Tenant) -> None:
    with facade.tenant_scope(acme.organization_id):
        event_id = facade.emit(acme.organization_id, "balance.low", {"amount": "0.5"})

    with facade.tenant_scope(acme.organization_id):
        event = OutboxEvent.objects.get(id=event_id)
    assert (event.kind, event.data, event.fanned_out_at) == ("balance.low", {"amount": "0.5"}, None)


def test_an_event_goes_with_the_transaction_that_failed(acme: Tenant) -> None:
    with suppress(CauseFailed), facade.tenant_scope(acme.organization_id):
        facade.emit(acme.organization_id, "balance.low", {})
        raise CauseFailed

    with facade.tenant_scope(acme.organization_id):
        assert not OutboxEvent.objects.filter(kind="balance.low").exists()


def test_nobody_speaks_for_another_tenant(acme: Tenant, globex: Tenant) -> None:
    with (
        pytest.raises(ProgrammingError, match="row-level security"),
        facade.tenant_scope(acme.organization_id),
    ):
        facade.emit(globex.organization_id, "balance.low", {})


def test_an_event_needs_a_scope_and_a_registered_kind(acme: Tenant) -> None:
    with pytest.raises(ScopeMissing):
        facade.emit(acme.organization_id, "balance.low", {})
    with pytest.raises(ValueError, match="made up"), facade.tenant_scope(acme.organization_id):
        facade.emit(acme.organization_id, "made up", {})


def test_a_kind_is_registered_once_with_one_meaning() -> None:
    facade.register_event_kind("trial.thing", "A thing of this test.")
    facade.register_event_kind("trial.thing", "A thing of this test.")

    with pytest.raises(ValueError, match=r"trial\.thing"):
        facade.register_event_kind("trial.thing", "Another thing.")
    with pytest.raises(ValueError, match="Trial"):
        facade.register_event_kind("Trial", "No dotted name.")


def test_waiting_mail_is_sealed_and_not_readable_by_the_app(acme: Tenant) -> None:
    with facade.tenant_scope(acme.organization_id):
        mail_id = facade.send_mail_later(
            acme.organization_id, "bob@example.com", "invitation", {"link": "https://x/secret"}
        )
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        facade.tenant_scope(acme.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute("SELECT * FROM tenants_mail")

    mail = Mail.objects.using("housekeeper").get(id=mail_id)
    assert mail.to_address == "bob@example.com"
    assert b"secret" not in bytes(mail.context_sealed)
