"""Credit bought without asking: one charge at a time, once, and a rest after each failure."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connections

from billing.contracts import PICO
from billing.credit.recharges import begin_recharge
from billing.facade import (
    begin_topup,
    open_account,
    recharge_due,
    recharge_settings,
    save_recharge,
    top_ups,
)
from billing.stripe_sync.payments import charge, settle
from headrace.standalone.data_folder import REPOSITORY
from tenants.contracts import Actor, ActorKind, Permission
from tenants.facade import create_organization, tenant_scope
from tests.billing.cast import at_once
from tests.billing.stripe.cast import Payer, ask
from tests.billing.stripe.fake_process import API_KEY, Fake
from tests.house import wait_until

CHARGE_DUE = "import django; django.setup();from billing.facade import recharge_due; recharge_due()"


def later(minutes: int) -> datetime:
    """A moment after now."""
    return datetime.now(UTC) + timedelta(minutes=minutes)


def charges(payer: Payer) -> list[str]:
    """The statuses of all charges of the tenant that are no page's, the newest first."""
    client = payer.fake.client()
    intents = client.v1.payment_intents.list({"customer": payer.customer_id, "limit": 100}).data
    mine = {each.id for each in intents if each.setup_future_usage is None}
    listed = client.v1.charges.list({"customer": payer.customer_id, "limit": 100}).data
    return [each.status for each in listed if str(each.payment_intent) in mine]


def use_card(payer: Payer, name: str) -> None:
    """The card on file is this one from now on."""
    card = payer.fake.client().v1.payment_methods.attach(name, {"customer": payer.customer_id})
    ask(
        "SELECT billing_stripe_apply('evt_card_' || gen_random_uuid(), 'test', now(), %s, %s,"
        " (SELECT id FROM billing_top_up WHERE organization_id = %s AND state = 'succeeded'"
        " LIMIT 1), 'fail', '', 'usd', 0, 0, 'a card was saved', %s)",
        payer.actor.organization_id,
        payer.customer_id,
        payer.actor.organization_id,
        card.id,
    )


@pytest.fixture
def saver(payer: Payer) -> Iterator[Payer]:
    """acme, with 25 of credit, a card on file, and a wish to never run out."""
    payer.paid(25)
    payer.wants_recharges(10)
    yield payer
    payer.wants_recharges(10, is_enabled=False)


def test_a_recharge_is_charged_to_the_card_on_file(saver: Payer, stranger: Payer) -> None:
    [begun] = [
        each for each in recharge_due() if each.organization_id == saver.actor.organization_id
    ]
    saver.settled()

    assert charges(saver) == ["succeeded"]
    assert saver.state(begun) == "succeeded"
    assert (saver.posted, stranger.posted) == (35 * PICO, 0)
    assert saver.legs("cash") == [-25 * PICO, -10 * PICO]


def test_fifty_at_once_make_one_charge(saver: Payer) -> None:
    at_once([recharge_due] * 50)
    saver.settled()

    # One is charged; the others found it open, or came after it and were due again.
    assert len(saver.recharges()) == len(charges(saver))
    assert saver.posted == 25 * PICO + len(charges(saver)) * 10 * PICO
    assert {each.state.value for each in saver.recharges()} == {"succeeded"}


def test_no_second_recharge_can_be_open(saver: Payer) -> None:
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute("SELECT billing_begin_recharge(%s)", [saver.actor.organization_id])
        cursor.execute("SELECT billing_begin_recharge(%s)", [saver.actor.organization_id])
        assert cursor.fetchall() == [(None,)]
    [(index,)] = ask(
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'billing_top_up_one_open_recharge'"
    )
    assert "UNIQUE" in index, "and the database has the last word"


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ("pm_card_chargeCustomerFail", "generic_decline"),
        ("pm_card_authenticationRequired", "authentication_required"),
    ],
)
def test_a_declined_recharge_is_tried_once_and_then_rests(
    saver: Payer, card: str, reason: str
) -> None:
    use_card(saver, card)
    recharge_due()
    saver.settled()

    for minutes in (2, 10, 59):
        recharge_due()
        settle(later(minutes))
    saver.settled()

    [recharge] = saver.recharges()
    assert (recharge.state.value, recharge.failure) == ("failed", reason)
    assert charges(saver) == ["failed"]
    assert saver.posted == 25 * PICO
    [(failures, pause)] = ask(
        "SELECT recharge_failures, recharge_not_before_at - now() FROM billing_settings"
        " WHERE organization_id = %s",
        saver.actor.organization_id,
    )
    assert failures == 1
    assert timedelta(minutes=55) < pause <= timedelta(hours=1)


def test_without_a_card_on_file_it_fails_and_rests(payer: Payer) -> None:
    payer.wants_recharges(10)
    recharge_due()
    recharge_due()

    [recharge] = payer.recharges()
    assert (recharge.state.value, recharge.failure) == ("failed", "no_card_on_file")
    payer.wants_recharges(10, is_enabled=False)


def japanese() -> Actor:
    """Who acts for a tenant whose currency has no cents."""
    organization = create_organization(f"yen-{uuid4().hex[:12]}", "yen")
    open_account(organization.organization_id, "JPY")
    return Actor(ActorKind.USER, uuid4(), organization.organization_id, frozenset(Permission))


def want_yen(actor: Actor, amount_pico: int, *, is_enabled: bool = True) -> None:
    """Recharges of that much."""
    save_recharge(
        actor,
        threshold_pico=1000 * PICO,
        amount_pico=amount_pico,
        month_max_pico=1000 * PICO,
        is_enabled=is_enabled,
    )


def test_an_amount_without_a_coin_is_refused(fake: Fake) -> None:
    actor = japanese()
    half = 10 * PICO + PICO // 2

    with pytest.raises(ValueError, match="no coin"):
        want_yen(actor, half)
    with pytest.raises(ValueError, match="no coin"):
        begin_topup(actor, half, "half a yen")

    assert top_ups(actor.organization_id) == []
    assert not recharge_settings(actor.organization_id).is_enabled
    assert begin_topup(actor, 10 * PICO, "ten yen").payment_url


def test_one_odd_recharge_keeps_no_other_waiting(saver: Payer) -> None:
    actor = japanese()
    want_yen(actor, 10 * PICO)
    with tenant_scope(actor.organization_id, "owner"), connections["owner"].cursor() as cursor:
        cursor.execute(
            "UPDATE billing_settings SET recharge_amount_pico = %s WHERE organization_id = %s",
            [10 * PICO + PICO // 2, actor.organization_id],
        )
    begun = [begin_recharge(each) for each in (actor.organization_id, saver.actor.organization_id)]

    settle(later(2))
    want_yen(actor, 10 * PICO, is_enabled=False)

    assert None not in begun
    [odd] = top_ups(actor.organization_id)
    assert (odd.state.value, odd.failure) == ("failed", "amount_without_coin")
    assert [each.state.value for each in saver.recharges()] == ["succeeded"]
    assert saver.posted == 35 * PICO


def test_a_lost_answer_is_no_second_charge(saver: Payer, fake: Fake) -> None:
    for path in ("/v1/payment_intents", "/v1/payment_intents/pi_"):
        fake.control("troubles", method="POST", path=path, lost=True)
    recharge_due()
    [recharge] = saver.recharges()

    for minutes in (2, 3, 4):
        settle(later(minutes))
    saver.settled()

    assert charges(saver) == ["succeeded"]
    assert saver.state(recharge) == "succeeded"
    assert saver.posted == 35 * PICO


def test_a_charge_repeated_by_anybody_is_one(saver: Payer) -> None:
    [begun] = [
        each for each in recharge_due() if each.organization_id == saver.actor.organization_id
    ]

    at_once([lambda: charge(begun)] * 8)
    use_card(saver, "pm_card_mastercard")
    charge(begun)
    saver.settled()

    assert charges(saver) == ["succeeded"]
    assert saver.posted == 35 * PICO


def test_a_worker_killed_between_charge_and_message_loses_nothing(saver: Payer, fake: Fake) -> None:
    fake.control("webhooks", drop=1000, retry_ms=3_600_000)
    fake.control(
        "troubles", method="POST", path="/v1/payment_intents/pi_", lost=True, delay_ms=60_000
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", CHARGE_DUE],
        env=os.environ
        | {
            "STRIPE_API_KEY": API_KEY,
            "STRIPE_API_BASE": fake.base_url,
            "HEADRACE_STRIPE_TIMEOUT_S": "120",
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'platform'}",
        },
        cwd=REPOSITORY,
    )
    wait_until(lambda: charges(saver) == ["succeeded"], timeout_s=120)
    worker.send_signal(signal.SIGKILL)
    worker.wait(timeout=30)
    [recharge] = saver.recharges()
    assert (recharge.state.value, saver.posted) == ("pending", 25 * PICO)
    assert recharge.payment_reference, "the payment was noted before it was charged"

    assert recharge_due() == [], "one is open"
    settle(later(2))

    assert (saver.state(recharge), saver.posted) == ("succeeded", 35 * PICO)
    assert charges(saver) == ["succeeded"]
    fake.control("reset")
    fake.control("webhooks", retry_ms=20)
    for event in fake.client().v1.events.list({"type": "payment_intent.succeeded"}).data:
        if event.data.object["id"] == recharge.payment_reference:
            fake.control(f"events/{event.id}/send")
    saver.settled()
    assert saver.posted == 35 * PICO
    assert saver.legs("cash") == [-25 * PICO, -10 * PICO]
