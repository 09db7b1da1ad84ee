"""Stripe's messages at the web's door: signed ones count once, in any order; no others count."""

import json
import time
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import transaction

from billing.contracts import PICO
from billing.stripe_sync.fake.webhooks import signature
from tests.billing.cast import at_once
from tests.billing.stripe.cast import Payer, ask, events_of, send_and_wait
from tests.billing.stripe.conftest import WEB_SECRETS
from tests.billing.stripe.fake_process import Fake

DAY_S = 24 * 3600


def post(
    web_url: str,
    event: Any,
    *,
    secrets: tuple[str, ...] = WEB_SECRETS[:1],
    at: int | None = None,
    body: bytes | None = None,
    header: str | None = "",
) -> httpx.Response:
    """Sends an event as Stripe does, or otherwise as told."""
    signed = json.dumps(event, indent=2).encode()
    if header == "":
        header = signature(signed, list(secrets), int(time.time()) if at is None else at)
    headers = {} if header is None else {"stripe-signature": header}
    return httpx.post(
        f"{web_url}/stripe/events",
        content=signed if body is None else body,
        headers=headers,
        timeout=30,
    )


def succeeded(payer: Payer, top_up_id: object, **changes: Any) -> dict[str, Any]:
    """The event that a top-up of 25 was paid, but for the changes to its intent."""
    return {
        "id": f"evt_{uuid4().hex}",
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": int(time.time()),
        "livemode": False,
        "data": {
            "object": {
                "id": f"pi_{uuid4().hex}",
                "object": "payment_intent",
                "amount_received": 2500,
                "currency": "usd",
                "customer": payer.customer_id,
                "payment_method": None,
                "setup_future_usage": None,
                "metadata": {
                    "headrace_organization": str(payer.actor.organization_id),
                    "headrace_top_up": str(top_up_id),
                },
                **changes,
            }
        },
    }


def test_only_what_is_signed_as_it_came_counts(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id)
    pretty = json.dumps(event, indent=2).encode()
    now = int(time.time())
    header = signature(pretty, [WEB_SECRETS[0]], now)

    refused = {
        "altered byte": post(web_url, event, body=pretty.replace(b"2500", b"9500"), header=header),
        "re-serialised": post(web_url, event, body=json.dumps(event).encode(), header=header),
        "missing header": post(web_url, event, header=None),
        "too old": post(web_url, event, at=now - 301),
        "too new": post(web_url, event, at=now + 310),
        "another secret": post(web_url, event, secrets=("whsec_of_somebody",)),
        "another time": post(web_url, event, header=header.replace(f"t={now}", f"t={now - 1}")),
        "two times": post(web_url, event, header=f"t={now},{header}"),
        "no signature": post(web_url, event, header=f"t={now}"),
        "another scheme": post(web_url, event, header=header.replace("v1=", "v0=")),
        "nonsense": post(web_url, event, header="nonsense"),
        "a long header": post(web_url, event, header=header + ",v1=0" * 1000),
    }

    assert {name: each.status_code for name, each in refused.items()} == dict.fromkeys(refused, 400)
    assert {each.json()["error"]["code"] for each in refused.values()} == {"invalid_signature"}
    assert (payer.posted, payer.events()) == (0, [])
    assert post(web_url, event, at=now - 280).status_code == 200
    assert payer.posted == 25 * PICO


@pytest.mark.parametrize(
    "secrets",
    [
        (WEB_SECRETS[0],),
        (WEB_SECRETS[1],),
        WEB_SECRETS,
        ("whsec_of_yesterday", WEB_SECRETS[1]),
    ],
)
def test_while_a_secret_is_rotated_either_one_will_do(
    payer: Payer, web_url: str, secrets: tuple[str, ...]
) -> None:
    event = succeeded(payer, payer.begin(25).top_up.top_up_id)

    assert post(web_url, event, secrets=secrets).status_code == 200
    assert payer.posted == 25 * PICO


@pytest.mark.parametrize("tamper", ["body", "past", "future", "reserialised", "missing", "secret"])
def test_messages_that_are_tampered_with_change_nothing(payer: Payer, tamper: str) -> None:
    started = payer.begin(25)
    payer.settled()
    before = len(payer.fake.deliveries())
    payer.fake.control("webhooks", tamper=tamper, retry_ms=1)
    payer.pay(started)
    payer.settled()

    assert {each["status"] for each in payer.fake.deliveries()[before:]} == {400}
    assert (payer.posted, payer.events()) == (0, [])

    payer.fake.control("webhooks", tamper="")
    [paid] = events_of(payer, "payment_intent.succeeded")
    payer.fake.control(f"events/{paid.id}/send")
    payer.settled()
    assert payer.posted == 25 * PICO


def test_fifty_deliveries_of_one_event_at_once_are_one_payment(payer: Payer, web_url: str) -> None:
    event = succeeded(payer, payer.begin(25).top_up.top_up_id)

    answers = at_once([lambda: post(web_url, event)] * 50)

    outcomes = [each.json()["outcome"] for each in answers if each.status_code == 200]
    assert outcomes.count("applied") == 1
    assert set(outcomes) <= {"applied", "repeated"}
    assert {each.status_code for each in answers} <= {200, 503}, "503 asks for it again"
    assert payer.posted == 25 * PICO
    assert payer.events() == [("payment_intent.succeeded", "applied")]


def test_fifty_events_of_one_payment_at_once_are_one_payment(payer: Payer, web_url: str) -> None:
    first = succeeded(payer, payer.begin(25).top_up.top_up_id)
    events = [{**first, "id": f"evt_{uuid4().hex}"} for _ in range(50)]

    answers = at_once([lambda event=event: post(web_url, event) for event in events])  # type: ignore[misc]

    outcomes = [each.json()["outcome"] for each in answers if each.status_code == 200]
    assert outcomes.count("applied") == 1
    assert set(outcomes) <= {"applied", "unchanged"}
    assert payer.posted == 25 * PICO
    assert payer.legs("cash") == [-25 * PICO]


def test_a_message_whose_effect_could_not_be_had_leaves_no_marker(
    payer: Payer, web_url: str
) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id)
    with transaction.atomic(using="housekeeper"):
        ask("SELECT 1 FROM billing_top_up WHERE id = %s FOR UPDATE", top_up.top_up_id)
        assert post(web_url, event).status_code == 503, "it waited for the row and gave up"
        assert payer.events() == []

    assert post(web_url, event).json()["outcome"] == "applied"
    assert payer.posted == 25 * PICO


def test_duplicated_delayed_and_reordered_messages_come_to_the_same(payer: Payer) -> None:
    payer.fake.control("webhooks", duplicates=3, delay_ms=10)
    payer.paid(25)
    payer.fake.control("webhooks", duplicates=0, delay_ms=0, reorder=50)
    started = payer.begin(10)
    payer.pay(started, "pm_card_chargeDeclined")
    payer.pay(started, "pm_card_visa")
    payer.settled()

    kinds = [each["type"] for each in payer.fake.deliveries()]
    last_failed = len(kinds) - 1 - kinds[::-1].index("payment_intent.payment_failed")
    last_paid = len(kinds) - 1 - kinds[::-1].index("payment_intent.succeeded")
    assert last_failed > last_paid, "the failure was told after the success"
    assert payer.state(started.top_up) == "succeeded"
    assert payer.posted == 35 * PICO
    assert payer.legs("cash") == [-25 * PICO, -10 * PICO]


def test_events_of_others_are_accepted_and_forgotten(payer: Payer, web_url: str) -> None:
    foreign = succeeded(payer, uuid4(), metadata={"order": "7"})
    unknown_kind = {**foreign, "type": "account.updated"}
    bare = {**foreign, "type": "balance.available", "data": {"object": {"object": "balance"}}}

    answers = [post(web_url, each) for each in (foreign, unknown_kind, bare)]

    assert [each.status_code for each in answers] == [200, 200, 200]
    assert {each.json()["outcome"] for each in answers} == {"ignored"}
    assert (payer.posted, payer.events()) == (0, [])


def test_a_message_before_its_customer_is_known_comes_again(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id, customer="cus_not_written_yet")

    early = post(web_url, event)
    assert early.status_code == 503
    assert early.headers["x-should-retry"] == "true"
    assert (payer.posted, payer.events()) == (0, [])

    event["data"]["object"]["customer"] = payer.customer_id
    assert post(web_url, event).json()["outcome"] == "applied"
    assert payer.posted == 25 * PICO


def test_a_message_of_rows_that_never_come_is_let_go_after_a_day(
    payer: Payer, web_url: str
) -> None:
    event = succeeded(payer, uuid4())
    assert post(web_url, event).status_code == 503

    event["created"] -= DAY_S + 60

    answer = post(web_url, event)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "ignored")


def test_a_payment_cannot_be_moved_to_another_tenant(
    payer: Payer, stranger: Payer, web_url: str
) -> None:
    top_up = payer.begin(25).top_up
    stranger.begin(25)
    mine_by_another = succeeded(payer, top_up.top_up_id, customer=stranger.customer_id)
    others_top_up = succeeded(stranger, top_up.top_up_id)

    assert post(web_url, mine_by_another).status_code == 503
    assert post(web_url, others_top_up).status_code == 503
    assert (payer.posted, stranger.posted) == (0, 0)


@pytest.mark.parametrize(
    "changes", [{"amount_received": 2400}, {"amount_received": 0}, {"currency": "eur"}]
)
def test_a_message_that_contradicts_the_books_is_quarantined(
    payer: Payer, web_url: str, changes: dict[str, Any]
) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id, **changes)

    answer = post(web_url, event)

    assert (answer.status_code, answer.json()["outcome"]) == (200, "quarantined")
    assert (payer.posted, payer.state(top_up)) == (0, "pending")
    assert payer.events() == [("payment_intent.succeeded", "quarantined")]


@pytest.mark.parametrize(
    "changes", [{"amount_received": -1}, {"amount_received": "2500"}, {"currency": None}]
)
def test_a_signed_message_of_nonsense_is_refused(
    payer: Payer, web_url: str, changes: dict[str, Any]
) -> None:
    event = succeeded(payer, payer.begin(25).top_up.top_up_id, **changes)
    if changes == {"currency": None}:
        del event["data"]["object"]["currency"]

    assert post(web_url, event).status_code == 400
    assert (payer.posted, payer.events()) == (0, [])


def test_a_second_payment_of_one_top_up_is_quarantined(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    assert post(web_url, succeeded(payer, top_up.top_up_id)).json()["outcome"] == "applied"

    second = post(web_url, succeeded(payer, top_up.top_up_id))

    assert second.json()["outcome"] == "quarantined"
    assert payer.posted == 25 * PICO


def test_refunds_are_taken_over_whatever_their_order(payer: Payer, fake: Fake) -> None:
    started = payer.paid(25)
    [(payment,)] = ask(
        "SELECT payment_reference FROM billing_top_up WHERE id = %s", started.top_up.top_up_id
    )
    fake.control("webhooks", reorder=50)
    for amount in (500, 700):
        fake.client().v1.refunds.create({"payment_intent": payment, "amount": amount})
    payer.settled()
    assert payer.posted == 13 * PICO
    assert payer.legs("cash") == [-25 * PICO, 12 * PICO]

    fake.control("webhooks", reorder=0)
    fake.client().v1.refunds.create({"payment_intent": payment})
    payer.settled()
    assert (payer.posted, payer.state(started.top_up)) == (0, "refunded")


def test_a_refund_told_before_its_payment_is_both(payer: Payer, fake: Fake) -> None:
    started = payer.begin(25)
    fake.control("webhooks", drop=1000, retry_ms=3_600_000)
    payer.pay(started)
    [paid] = events_of(payer, "payment_intent.succeeded")
    intent = paid.data.object["id"]
    fake.client().v1.refunds.create({"payment_intent": intent, "amount": 1000})
    [refunded] = events_of(payer, "charge.refunded")
    fake.control("webhooks", drop=0, retry_ms=20)

    for event in (refunded, paid, refunded):
        send_and_wait(fake, event.id)

    assert payer.posted == 15 * PICO
    assert payer.legs("cash") == [-25 * PICO, 10 * PICO]
    assert payer.events() == [
        ("charge.refunded", "applied"),
        ("payment_intent.succeeded", "unchanged"),
    ]


def test_a_body_past_all_measure_is_refused(web_url: str) -> None:
    answer = post(web_url, {"id": "evt_big", "filling": "x" * (1024 * 1024 + 1)})

    assert answer.status_code == 413
