"""A tenant pays in by Stripe's page: each payment becomes credit once, whatever gets lost."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from billing.contracts import PICO, StartedTopUp, TopUpNotFound, TopUpUnavailable
from billing.facade import continue_topup, top_ups, use_payment_provider
from billing.models import StripeCheckout
from billing.stripe_sync.payments import settle
from tenants.contracts import Role
from tenants.facade import operator_of, read_organization, tenant_scope
from tests.billing.cast import at_once
from tests.billing.stripe.cast import BACK, Payer, ask, events_of, send_and_wait
from tests.billing.stripe.fake_process import Fake
from tests.headrace.door import member_of


def later(minutes: int) -> datetime:
    """A moment after now."""
    return datetime.now(UTC) + timedelta(minutes=minutes)


def expire(payer: Payer, started: StartedTopUp) -> None:
    """Closes its page."""
    [(session_id,)] = ask(
        "SELECT session_id FROM billing_stripe_checkout WHERE top_up_id = %s",
        started.top_up.top_up_id,
    )
    payer.fake.client().v1.checkout.sessions.expire(session_id)


def test_a_page_that_is_paid_becomes_credit(payer: Payer, stranger: Payer) -> None:
    started = payer.begin(25)
    assert (payer.posted, payer.state(started.top_up)) == (0, "pending")

    answer = payer.pay(started)
    payer.settled()

    assert answer.headers["location"] == "https://console.example.com/billing?top_up=done"
    assert payer.state(started.top_up) == "succeeded"
    assert (payer.posted, stranger.posted) == (25 * PICO, 0)
    assert payer.legs("credit") == [25 * PICO]
    assert payer.legs("cash") == [-25 * PICO]
    outcomes = dict(payer.events())
    assert set(outcomes) == {"checkout.session.completed", "payment_intent.succeeded"}
    assert sorted(outcomes.values()) == ["applied", "unchanged"], "both say it, in either order"


def test_the_card_is_kept_for_recharges(payer: Payer) -> None:
    payer.paid()

    [(customer, card)] = ask(
        "SELECT customer_id, payment_method_id FROM billing_stripe_account"
        " WHERE organization_id = %s",
        payer.actor.organization_id,
    )
    kept = payer.fake.client().v1.payment_methods.retrieve(card)
    assert kept.customer == customer


def test_the_same_wish_is_the_same_page(payer: Payer) -> None:
    first = payer.begin(25, key="wish")
    again = payer.begin(25, key="wish")

    assert again.payment_url == first.payment_url
    sessions = payer.fake.client().v1.checkout.sessions.list({"customer": payer.customer_id})
    assert len(sessions.data) == 1


def test_wishes_at_once_make_one_page_and_one_customer(payer: Payer) -> None:
    def wish() -> StartedTopUp:
        return payer.begin(25, key="at once")

    started = at_once([wish] * 8)

    assert len({each.payment_url for each in started}) == 1
    client = payer.fake.client()
    customers = [
        each
        for each in client.v1.customers.list({"limit": 100}).data
        if each.metadata is not None
        and each.metadata.to_dict() == {"headrace_organization": str(payer.actor.organization_id)}
    ]
    assert [each.id for each in customers] == [payer.customer_id]


def test_a_payment_that_was_left_goes_on_at_its_page(payer: Payer, stranger: Payer) -> None:
    left = payer.begin(25)

    continued = continue_topup(payer.actor, left.top_up.top_up_id, BACK)
    payer.pay(continued)
    at_once_after = continue_topup(payer.actor, left.top_up.top_up_id, BACK)
    payer.settled()

    assert continued.payment_url == left.payment_url
    assert at_once_after.payment_url == ""
    assert continue_topup(payer.actor, left.top_up.top_up_id, BACK).payment_url == ""
    assert payer.posted == 25 * PICO
    with pytest.raises(TopUpNotFound):
        continue_topup(stranger.actor, left.top_up.top_up_id, BACK)


def test_who_may_pay_goes_on_from_the_console(payer: Payer) -> None:
    started = payer.begin(25)
    organization_id = payer.actor.organization_id
    slug = read_organization(operator_of(organization_id)).slug
    owner = member_of(organization_id, Role.OWNER)
    fields = {"do": "continue", "top_up": str(started.top_up.top_up_id)}

    to_page = owner.post(f"/console/{slug}/billing", data=fields)
    expire(payer, started)
    closed = owner.post(f"/console/{slug}/billing", data=fields)

    assert to_page.status_code == closed.status_code == 303
    assert to_page.headers["location"] == started.payment_url
    assert closed.headers["location"] == f"/console/{slug}/billing"


def test_a_top_up_whose_page_was_not_made_gets_one(payer: Payer) -> None:
    payer.fake.control("troubles", method="POST", path="/v1/checkout/sessions", lost=True)
    with pytest.raises(TopUpUnavailable):
        payer.begin(25, key="lost")
    [waiting] = top_ups(payer.actor.organization_id)

    continued = continue_topup(payer.actor, waiting.top_up_id, BACK)

    sessions = payer.fake.client().v1.checkout.sessions.list({"customer": payer.customer_id})
    assert [each.url for each in sessions.data] == [continued.payment_url]


def test_a_page_whose_answer_was_lost_is_found_again(payer: Payer) -> None:
    payer.fake.control("troubles", method="POST", path="/v1/checkout/sessions", lost=True)
    with pytest.raises(TopUpUnavailable):
        payer.begin(25, key="lost")

    started = payer.begin(25, key="lost")

    sessions = payer.fake.client().v1.checkout.sessions.list({"customer": payer.customer_id})
    assert [each.url for each in sessions.data] == [started.payment_url]


def test_without_a_provider_nothing_is_begun(payer: Payer) -> None:
    use_payment_provider(None)

    with pytest.raises(TopUpUnavailable):
        payer.begin()
    assert ask(
        "SELECT count(*) FROM billing_top_up WHERE organization_id = %s",
        payer.actor.organization_id,
    ) == [(0,)]


def test_a_declined_card_may_be_followed_by_a_good_one(payer: Payer) -> None:
    started = payer.begin(25)

    assert payer.pay(started, "pm_card_chargeDeclined").status_code == 200
    payer.settled()
    assert (payer.state(started.top_up), payer.posted) == ("failed", 0)

    assert payer.pay(started, "pm_card_visa").status_code == 303
    payer.settled()
    assert (payer.state(started.top_up), payer.posted) == ("succeeded", 25 * PICO)


def test_a_page_nobody_pays_expires(payer: Payer) -> None:
    started = payer.begin(25)
    expire(payer, started)
    payer.settled()

    assert (payer.state(started.top_up), payer.posted) == ("failed", 0)


def test_a_payment_whose_messages_are_all_lost_is_asked_for(payer: Payer, fake: Fake) -> None:
    fake.control("webhooks", drop=1000, retry_ms=3_600_000)
    started = payer.begin(25)
    payer.pay(started)
    settle(later(5))
    assert payer.state(started.top_up) == "pending", "too early to ask"

    settle(later(20))
    assert (payer.state(started.top_up), payer.posted) == ("succeeded", 25 * PICO)

    settle(later(60))
    fake.control("webhooks", drop=0, retry_ms=20)
    [paid] = events_of(payer, "payment_intent.succeeded")
    send_and_wait(fake, paid.id)
    assert payer.posted == 25 * PICO
    assert payer.legs("cash") == [-25 * PICO]


def test_a_good_card_after_a_bad_one_is_asked_for_too(payer: Payer, fake: Fake) -> None:
    started = payer.begin(25)
    assert payer.pay(started, "pm_card_chargeDeclined").status_code == 200
    payer.settled()
    assert payer.state(started.top_up) == "failed"

    fake.control("webhooks", drop=1000, retry_ms=3_600_000)
    assert payer.pay(started, "pm_card_visa").status_code == 303
    settle(later(20))
    fake.control("webhooks", drop=0, retry_ms=20)

    assert (payer.state(started.top_up), payer.posted) == ("succeeded", 25 * PICO)
    assert payer.legs("cash") == [-25 * PICO]


def test_a_failed_page_is_looked_at_once_more_after_it_expired(payer: Payer) -> None:
    started = payer.begin(25)
    assert payer.pay(started, "pm_card_chargeDeclined").status_code == 200
    payer.settled()

    def looked_at() -> datetime:
        [(moment,)] = ask(
            "SELECT looked_at FROM billing_stripe_checkout WHERE top_up_id = %s",
            started.top_up.top_up_id,
        )
        assert isinstance(moment, datetime)
        return moment

    day = 24 * 60
    looks = [later(minutes) for minutes in (20, day - 5, day + 30, day + 60)]
    seen = []
    for now in looks:
        settle(now)
        seen.append(looked_at())

    assert seen == [*looks[:3], looks[2]], "nobody can pay it any more"
    assert payer.state(started.top_up) == "failed"


@pytest.mark.parametrize(("cents", "is_its_own"), [(2600, True), (2500, False)])
def test_a_payment_that_contradicts_the_books_keeps_no_other_waiting(
    payer: Payer, stranger: Payer, fake: Fake, cents: int, is_its_own: bool
) -> None:
    """Of another sum, or not made for this top-up: whoever may write rows may name any payment."""
    fake.control("webhooks", drop=1000, retry_ms=3_600_000)
    odd, good = payer.begin(25), stranger.begin(25)
    metadata = {
        "headrace_organization": str(payer.actor.organization_id),
        "headrace_top_up": str((odd if is_its_own else good).top_up.top_up_id),
    }
    page = fake.client().v1.checkout.sessions.create(
        {
            "mode": "payment",
            "customer": payer.customer_id,
            "payment_intent_data": {"metadata": metadata},
            "success_url": BACK,
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {
                        "currency": "usd",
                        "unit_amount": cents,
                        "product_data": {"name": "Another thing"},
                    },
                }
            ],
        }
    )
    with tenant_scope(payer.actor.organization_id, "owner"):
        StripeCheckout.objects.using("owner").filter(top_up_id=odd.top_up.top_up_id).update(
            session_id=page.id
        )
    payer.pay(replace(odd, payment_url=str(page.url)))
    stranger.pay(good)

    settle(later(20))
    fake.control("webhooks", drop=0, retry_ms=20)

    assert (payer.state(odd.top_up), payer.posted) == ("pending", 0)
    assert (stranger.state(good.top_up), stranger.posted) == ("succeeded", 25 * PICO)


def test_stripe_being_away_fails_nothing(payer: Payer, fake: Fake) -> None:
    fake.control("troubles", method="POST", path="/v1/customers", status=503, count=2)

    with pytest.raises(TopUpUnavailable):
        payer.begin(25, key="away")

    assert payer.begin(25, key="away").payment_url
