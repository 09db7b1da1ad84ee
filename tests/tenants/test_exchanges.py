"""Prompts are kept for those who ask for it, sealed, for as long as they say, for who may read."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import ProgrammingError

from tenants import facade
from tenants.contracts import PermissionDenied, Role
from tenants.contracts.retention import ExchangeNotFound, IdempotencyScope
from tenants.models import Exchange, IdempotentRequest, Mail, OutboxEvent
from tenants.retention.exchanges import TEXT_BYTES_MAX
from tenants.retention.sweeping import EVENTS_KEPT_DAYS, MAIL_KEPT_DAYS, sweep_retention
from tests.tenants.people_cast import Company, make_company

PROMPT = '{"messages": [{"role": "user", "content": "the secret of acme 🗝"}]}'.encode()


@pytest.fixture
def acme(django_database: object) -> Company:
    """Who keeps prompts for a week."""
    company = make_company("acme")
    facade.update_organization(company.owner, prompts_kept_days=7)
    return company


def kept(company: Company, prompt: bytes = PROMPT, days: int = 7) -> UUID:
    """A request that was answered."""
    request_id = uuid4()
    facade.keep_exchange(
        company.tenant.organization_id,
        company.tenant.project_id,
        request_id,
        prompt,
        b"an answer",
        days,
    )
    return request_id


def test_an_exchange_is_read_as_it_was(acme: Company) -> None:
    request_id = kept(acme)
    exchange = facade.read_exchange(acme.actor(Role.DEVELOPER), request_id)

    assert exchange.prompt.encode() == PROMPT
    assert (exchange.answer, exchange.truncated) == ("an answer", False)
    assert (exchange.expires_at - exchange.created_at).days == 7


def test_what_is_stored_cannot_be_read_in_the_database(acme: Company) -> None:
    row = Exchange.objects.using("housekeeper").get(id=kept(acme))

    for column in (row.prompt_sealed, row.answer_sealed):
        assert b"secret" not in bytes(column)
        assert b"answer" not in bytes(column)


def test_others_find_nothing(acme: Company) -> None:
    request_id = kept(acme)
    with pytest.raises(PermissionDenied):
        facade.read_exchange(acme.actor(Role.VIEWER), request_id)
    with pytest.raises(ExchangeNotFound):
        facade.read_exchange(make_company("globex").owner, request_id)


def test_an_exchange_is_neither_changed_nor_deleted_by_the_app(acme: Company) -> None:
    kept(acme)
    for act in (
        lambda: Exchange.objects.update(truncated=True),
        lambda: Exchange.objects.all().delete(),
    ):
        with (
            pytest.raises(ProgrammingError, match="permission denied"),
            facade.tenant_scope(acme.tenant.organization_id),
        ):
            act()


def test_a_long_exchange_is_kept_in_part(acme: Company) -> None:
    request_id = kept(acme, b"x" * (TEXT_BYTES_MAX + 1))
    exchange = facade.read_exchange(acme.owner, request_id)

    assert len(exchange.prompt) == TEXT_BYTES_MAX
    assert exchange.truncated


def test_an_exchange_expires_and_is_swept(acme: Company) -> None:
    expired, fresh = kept(acme, days=0), kept(acme)
    with pytest.raises(ExchangeNotFound):
        facade.read_exchange(acme.owner, expired)
    sweep_retention()

    rows = Exchange.objects.using("housekeeper")
    assert not rows.filter(id=expired).exists()
    assert rows.filter(id=fresh).exists()


def test_who_keeps_prompts_no_more_has_those_kept_forgotten(acme: Company) -> None:
    request_id = kept(acme)
    facade.update_organization(acme.owner, prompts_kept_days=None)
    sweep_retention()

    assert not Exchange.objects.using("housekeeper").filter(id=request_id).exists()


def test_old_events_mail_and_answers_are_swept_and_what_waits_is_not(acme: Company) -> None:
    organization_id = acme.tenant.organization_id
    now = datetime.now(UTC)
    place = IdempotencyScope(organization_id, organization_id, "/x", "k")
    facade.claim_idempotency_key(place, b"h" * 32)
    with facade.tenant_scope(organization_id):
        told, waiting = [facade.emit(organization_id, "balance.low", {}) for _ in range(2)]
        mails = [
            facade.send_mail_later(organization_id, "a@example.com", "sign_in", {})
            for _ in range(2)
        ]
    events = OutboxEvent.objects.using("housekeeper")
    events.filter(id__in=[told, waiting]).update(created_at=now - timedelta(days=EVENTS_KEPT_DAYS))
    events.filter(id=told).update(fanned_out_at=now)
    posted = Mail.objects.using("housekeeper")
    posted.filter(id__in=mails).update(created_at=now - timedelta(days=MAIL_KEPT_DAYS))
    posted.filter(id=mails[0]).update(sent_at=now)
    answers = IdempotentRequest.objects.using("housekeeper").filter(organization_id=organization_id)
    sweep_retention()
    assert answers.exists()
    answers.update(expires_at=now)
    sweep_retention()

    assert not answers.exists()
    assert [row.id for row in events.filter(id__in=[told, waiting])] == [waiting]
    assert [row.id for row in posted.filter(id__in=mails)] == [mails[1]]
