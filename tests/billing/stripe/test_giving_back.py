"""Money back: the books first, Stripe after them, each once, whatever gets lost between."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from billing.contracts import PICO, StartedTopUp, UsageCounts
from billing.facade import reconcile, settle
from billing.stripe_sync.refunds import overdue_refunds, settle_refunds
from tests.billing.cast import used
from tests.billing.stripe.cast import Payer
from tests.billing.stripe.fake_process import Fake


def give_back(payer: Payer, started: StartedTopUp, amount: str, *how: str) -> str:
    """What the operator's command says."""
    said = io.StringIO()
    call_command(
        "refund_top_up",
        str(payer.actor.organization_id),
        str(started.top_up.top_up_id),
        amount,
        *(how if how[0].startswith("--") else ("--reference", *how)),
        stdout=said,
    )
    return said.getvalue()


def refunds(payer: Payer) -> list[int]:
    """What Stripe gave back of the tenant's payments, in cents, the newest first."""
    client = payer.fake.client()
    intents = client.v1.payment_intents.list({"customer": payer.customer_id, "limit": 100}).data
    mine = {each.id for each in intents}
    listed = client.v1.refunds.list({"limit": 100}).data
    return [each.amount for each in listed if each.payment_intent in mine]


def test_a_refund_is_given_once_per_reference(payer: Payer) -> None:
    started = payer.paid(25)

    said = [give_back(payer, started, "10", "first") for _ in range(2)]
    give_back(payer, started, "5", "second")
    payer.settled()
    settle_refunds(datetime.now(UTC))

    assert said == [f"10.00 USD given back of top-up {started.top_up.top_up_id}\n"] * 2
    assert refunds(payer) == [500, 1000]
    assert payer.posted == 10 * PICO
    assert payer.legs("cash") == [-25 * PICO, 10 * PICO, 5 * PICO]


def test_what_is_spent_is_not_given_back(payer: Payer) -> None:
    started = payer.paid(25)
    settle([used(payer.tenant.held(), UsageCounts(60, 0, 40))])

    with pytest.raises(CommandError):
        give_back(payer, started, "25", "all of it")
    with pytest.raises(CommandError):
        give_back(payer, started, "0.001", "no coin")
    assert refunds(payer) == []
    assert payer.posted == 25 * PICO - 100


def test_a_refund_that_stripe_did_not_hear_of_is_sent_later(payer: Payer, fake: Fake) -> None:
    started = payer.paid(25)
    fake.control("troubles", method="POST", path="/v1/refunds", status=503, count=2)
    give_back(payer, started, "10", "first")
    assert (payer.posted, refunds(payer)) == (15 * PICO, [])

    fake.control("troubles", method="POST", path="/v1/refunds", lost=True, status=502, count=2)
    settle_refunds(datetime.now(UTC))
    settle_refunds(datetime.now(UTC))
    payer.settled()

    assert refunds(payer) == [1000]
    assert payer.legs("cash") == [-25 * PICO, 10 * PICO]


def test_what_a_dispute_took_is_taken_from_the_books_alone(payer: Payer) -> None:
    started = payer.paid(25)
    settle([used(payer.tenant.held(), UsageCounts(60, 0, 40))])

    for _ in range(2):
        give_back(payer, started, "20", "--already-paid-back")
    settle_refunds(datetime.now(UTC) + timedelta(minutes=1))
    assert refunds(payer) == [], "Stripe gave it back by itself"
    with pytest.raises(CommandError):
        give_back(payer, started, "21", "--already-paid-back")

    give_back(payer, started, "4", "the rest")
    payer.settled()

    assert refunds(payer) == [400]
    assert payer.legs("cash") == [-25 * PICO, 20 * PICO, 4 * PICO]
    assert payer.posted == PICO - 100
    assert reconcile() == []


def test_a_dispute_of_spent_credit_is_written_off(payer: Payer) -> None:
    started = payer.paid(25)
    settle([used(payer.tenant.held(), UsageCounts(60, 0, 40))])

    give_back(payer, started, "25", "--already-paid-back")

    assert payer.posted == 0
    assert payer.legs("write_off") == [-100]
    assert payer.legs("cash") == [-25 * PICO, 25 * PICO]
    assert reconcile() == []


def test_a_refund_that_stripe_never_took_is_reported(payer: Payer, fake: Fake) -> None:
    started = payer.paid(25)
    fake.control("troubles", method="POST", path="/v1/refunds", status=503, count=2)
    give_back(payer, started, "10", "first")

    def overdue(days: int) -> list[int]:
        now = datetime.now(UTC) + timedelta(days=days)
        mine = str(payer.actor.organization_id)
        listed = overdue_refunds(now)
        return [each.amount_pico for each in listed if str(each.organization_id) == mine]

    assert (overdue(6), overdue(8)) == ([], [10 * PICO])
    settle_refunds(datetime.now(UTC))
    payer.settled()
    assert overdue(8) == []
