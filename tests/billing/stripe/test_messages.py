"""Stripe's messages, from the web's door to the books: signed ones count once, in any order; no
others count.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import ProgrammingError, connections, transaction
from django.test import override_settings

from billing.contracts import PICO
from billing.facade import backlogs
from billing.stripe_sync.fake.webhooks import signature
from billing.tasks import apply_stripe_messages
from headrace.standalone.data_folder import REPOSITORY
from tests.billing.cast import at_once
from tests.billing.stripe.cast import Payer, ask, events_of, read_inbox, send_and_wait
from tests.billing.stripe.conftest import WEB_SECRETS
from tests.billing.stripe.fake_process import Fake
from tests.house import wait_until

DAY_S = 24 * 3600
A_WORKER = "import django; django.setup(); from billing import tasks; tasks.apply_stripe_messages()"
SOMEBODY_AT_WORK = (
    "SELECT 1 FROM pg_stat_activity WHERE usename = current_user AND state <> 'idle'"
    " AND pid <> pg_backend_pid()"
)
IN_THE_MIDDLE = (
    "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT billing_stripe_apply(%%'"
    " AND state = 'active' AND wait_event_type = 'Lock'"
)


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


def told(web_url: str, event: Any, **how: Any) -> str:
    """Sends an event, lets a worker take it, and says what it made of it; empty while it waits."""
    answer = post(web_url, event, **how)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "accepted")
    message_id = message_of(answer)
    read_inbox()
    return outcome_of(message_id)


def message_of(answer: httpx.Response) -> int:
    """The id of the message that was sent and kept, by its signature."""
    [(message_id,)] = ask(
        "SELECT max(id) FROM billing_stripe_message WHERE signature = %s",
        answer.request.headers["stripe-signature"],
    )
    return int(message_id)


def put_in(body: bytes, header: str) -> None:
    """What SQL injected into the web could do: it has the role's rights."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_stripe_message (body, signature) VALUES (%s, %s)", [body, header]
        )


@contextmanager
def holding() -> Iterator[None]:
    """Nobody else changes a top-up."""
    with transaction.atomic(using="owner"), connections["owner"].cursor() as cursor:
        cursor.execute("LOCK TABLE billing_top_up IN EXCLUSIVE MODE")
        yield


def outcome_of(message_id: int) -> str:
    """What became of a message."""
    [(outcome,)] = ask("SELECT outcome FROM billing_stripe_message WHERE id = %s", message_id)
    return str(outcome)


def outcomes_after(message_id: int) -> list[str]:
    """What became of all messages that came later."""
    rows = ask("SELECT outcome FROM billing_stripe_message WHERE id > %s ORDER BY id", message_id)
    return [str(outcome) for (outcome,) in rows]


def latest(payer: Payer) -> int:
    """The id of the newest message, or 0, once the fake has said all it has to say."""
    payer.settled()
    [(message_id,)] = ask("SELECT coalesce(max(id), 0) FROM billing_stripe_message")
    return int(message_id)


def taken_at_once() -> None:
    """Eight workers take what waits, each a share."""
    at_once([apply_stripe_messages] * 8)
    read_inbox()


def test_only_what_is_signed_as_it_came_counts(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id)
    pretty = json.dumps(event, indent=2).encode()
    now = int(time.time())
    header = signature(pretty, [WEB_SECRETS[0]], now)
    before = latest(payer)

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
    assert outcomes_after(before) == [], "nothing of it was kept"
    assert told(web_url, event, at=now - 280) == "applied"
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

    assert told(web_url, event, secrets=secrets) == "applied"
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

    before = latest(payer)

    answers = at_once([lambda: post(web_url, event)] * 50)
    taken_at_once()

    assert {each.status_code for each in answers} == {200}
    outcomes = outcomes_after(before)
    assert (outcomes.count("applied"), outcomes.count("repeated")) == (1, 49)
    assert payer.posted == 25 * PICO
    assert payer.events() == [("payment_intent.succeeded", "applied")]


def test_fifty_events_of_one_payment_at_once_are_one_payment(payer: Payer, web_url: str) -> None:
    first = succeeded(payer, payer.begin(25).top_up.top_up_id)
    events = [{**first, "id": f"evt_{uuid4().hex}"} for _ in range(50)]

    before = latest(payer)

    at_once([lambda event=event: post(web_url, event) for event in events])  # type: ignore[misc]
    taken_at_once()

    outcomes = outcomes_after(before)
    assert (outcomes.count("applied"), outcomes.count("unchanged")) == (1, 49)
    assert payer.posted == 25 * PICO
    assert payer.legs("cash") == [-25 * PICO]


def test_a_message_whose_effect_could_not_be_had_waits_and_leaves_no_marker(
    payer: Payer, web_url: str
) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id)
    payer.settled()
    answer = post(web_url, event)
    with holding():
        read_inbox()
        assert payer.events() == []
    assert ask(
        "SELECT outcome, tries, next_try_at > now() FROM billing_stripe_message WHERE id = %s",
        message_of(answer),
    ) == [("", 1, True)]

    read_inbox()
    assert outcome_of(message_of(answer)) == "applied"
    assert payer.posted == 25 * PICO


def test_a_message_that_the_database_never_takes_is_given_up(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    payer.settled()
    message_id = message_of(post(web_url, succeeded(payer, top_up.top_up_id)))
    ask("UPDATE billing_stripe_message SET tries = 199 WHERE id = %s RETURNING id", message_id)
    before = backlogs().stripe_unapplied
    with holding():
        read_inbox()

    assert outcome_of(message_id) == "failed"
    assert backlogs().stripe_unapplied == before + 1
    assert payer.posted == 0


def test_a_worker_killed_over_a_message_loses_nothing(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    assert post(web_url, succeeded(payer, top_up.top_up_id)).status_code == 200
    with holding():
        worker = subprocess.Popen(
            [sys.executable, "-c", A_WORKER],
            env={**os.environ, "STRIPE_WEBHOOK_SECRETS": ",".join(WEB_SECRETS)},
            cwd=REPOSITORY,
        )
        wait_until(lambda: ask(IN_THE_MIDDLE) != [], timeout_s=60)
        worker.kill()
        worker.wait()
    assert (payer.posted, payer.events()) == (0, [])

    wait_until(lambda: ask(SOMEBODY_AT_WORK) == [])
    read_inbox()
    assert payer.posted == 25 * PICO
    assert payer.events() == [("payment_intent.succeeded", "applied")]


def test_what_the_webs_role_puts_into_the_inbox_is_believed_by_its_signature_only(
    payer: Payer,
) -> None:
    event = json.dumps(succeeded(payer, payer.begin(25).top_up.top_up_id)).encode()
    now = int(time.time())
    others = signature(event, ["whsec_of_somebody"], now)
    old = signature(event, [WEB_SECRETS[0]], now - 301)
    before, rejected = latest(payer), backlogs().stripe_rejected
    for header in (others, old, "", "nonsense"):
        put_in(event, header)
    read_inbox()

    assert outcomes_after(before) == ["rejected"] * 4
    assert backlogs().stripe_rejected == rejected + 4
    assert (payer.posted, payer.events()) == (0, [])
    put_in(event, signature(event, [WEB_SECRETS[0]], now))
    read_inbox()
    assert payer.posted == 25 * PICO


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM billing_stripe_message",
        "UPDATE billing_stripe_message SET outcome = ''",
        "DELETE FROM billing_stripe_message",
        "INSERT INTO billing_stripe_message (body, signature, received_at) VALUES ('', '', now())",
        "INSERT INTO billing_stripe_message (body, signature) VALUES ('', '') RETURNING id",
        (
            "SELECT billing_stripe_apply('evt', 'mine', now(), NULL, 'cus', NULL, 'complete', 'pi',"
            " 'usd', 1, 0, '', '')"
        ),
    ],
)
def test_the_webs_role_only_adds_to_the_inbox_and_applies_nothing(
    payer: Payer, statement: str
) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(statement)


def test_a_worker_without_secrets_leaves_messages_to_one_that_has_them(
    payer: Payer, web_url: str
) -> None:
    answer = post(web_url, succeeded(payer, payer.begin(25).top_up.top_up_id))
    with override_settings(STRIPE_WEBHOOK_SECRETS=()):
        read_inbox()

    assert outcome_of(message_of(answer)) == ""
    read_inbox()
    assert payer.posted == 25 * PICO


def test_only_doubtful_messages_are_kept_readable(payer: Payer, web_url: str) -> None:
    event = succeeded(payer, payer.begin(25).top_up.top_up_id)
    applied = post(web_url, event)
    doubtful = post(web_url, {**event, "id": f"evt_{uuid4().hex}", "created": "never"})
    read_inbox()

    kept = "SELECT outcome, body <> '' FROM billing_stripe_message WHERE id = %s"
    assert ask(kept, message_of(applied)) == [("applied", False)]
    assert ask(kept, message_of(doubtful)) == [("invalid", True)]


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

    assert {told(web_url, each) for each in (foreign, unknown_kind, bare)} == {"ignored"}
    assert (payer.posted, payer.events()) == (0, [])


def test_a_message_before_its_customer_is_known_waits_for_it(payer: Payer, web_url: str) -> None:
    organization_id, top_up_id, customer = (
        payer.actor.organization_id,
        uuid4(),
        f"cus_{uuid4().hex}",
    )
    ask(
        "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency, idempotency_key)"
        " VALUES (%s, %s, %s, 'USD', 'mine') RETURNING id",
        top_up_id,
        organization_id,
        25 * PICO,
    )
    answer = post(web_url, succeeded(payer, top_up_id, customer=customer))
    read_inbox()
    assert outcome_of(message_of(answer)) == ""
    assert (payer.posted, payer.events()) == (0, [])

    ask(
        "INSERT INTO billing_stripe_account (organization_id, customer_id) VALUES (%s, %s)"
        " RETURNING organization_id",
        organization_id,
        customer,
    )
    read_inbox()
    assert outcome_of(message_of(answer)) == "applied"
    assert payer.posted == 25 * PICO


def test_a_message_of_rows_that_never_come_is_let_go_after_a_day(
    payer: Payer, web_url: str
) -> None:
    event = succeeded(payer, uuid4())
    assert told(web_url, event) == ""

    event["created"] -= DAY_S + 60

    assert told(web_url, event) == "ignored"


def test_a_payment_cannot_be_moved_to_another_tenant(
    payer: Payer, stranger: Payer, web_url: str
) -> None:
    top_up = payer.begin(25).top_up
    stranger.begin(25)
    mine_by_another = succeeded(payer, top_up.top_up_id, customer=stranger.customer_id)
    others_top_up = succeeded(stranger, top_up.top_up_id)

    assert told(web_url, mine_by_another) == ""
    assert told(web_url, others_top_up) == ""
    assert (payer.posted, stranger.posted) == (0, 0)


@pytest.mark.parametrize(
    "changes", [{"amount_received": 2400}, {"amount_received": 0}, {"currency": "eur"}]
)
def test_a_message_that_contradicts_the_books_is_quarantined(
    payer: Payer, web_url: str, changes: dict[str, Any]
) -> None:
    top_up = payer.begin(25).top_up
    event = succeeded(payer, top_up.top_up_id, **changes)

    assert told(web_url, event) == "quarantined"
    assert (payer.posted, payer.state(top_up)) == (0, "pending")
    assert payer.events() == [("payment_intent.succeeded", "quarantined")]


@pytest.mark.parametrize(
    "changes", [{"amount_received": -1}, {"amount_received": "2500"}, {"currency": None}]
)
def test_a_signed_message_of_nonsense_changes_nothing(
    payer: Payer, web_url: str, changes: dict[str, Any]
) -> None:
    event = succeeded(payer, payer.begin(25).top_up.top_up_id, **changes)
    if changes == {"currency": None}:
        del event["data"]["object"]["currency"]

    assert told(web_url, event) == "invalid"
    assert (payer.posted, payer.events()) == (0, [])


def test_a_second_payment_of_one_top_up_is_quarantined(payer: Payer, web_url: str) -> None:
    top_up = payer.begin(25).top_up
    assert told(web_url, succeeded(payer, top_up.top_up_id)) == "applied"

    assert told(web_url, succeeded(payer, top_up.top_up_id)) == "quarantined"
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
