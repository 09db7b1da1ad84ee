"""The fake refuses what Stripe refuses, and answers a repeated call as Stripe does."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import stripe

from tests.billing.stripe.fake_process import API_KEY, Fake, fake_running, state_argument
from tests.house import free_port

DAY_S = 24 * 3600


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    """One fake for all of these."""
    with fake_running() as running:
        yield running


@pytest.fixture(scope="module")
def client(fake: Fake) -> stripe.StripeClient:
    """The stock client."""
    return fake.client()


def meter_event(
    client: stripe.StripeClient, customer: str, identifier: str, timestamp: int
) -> stripe.billing.MeterEvent:
    """One token used at that time."""
    return client.v1.billing.meter_events.create(
        {
            "event_name": "tokens",
            "identifier": identifier,
            "timestamp": timestamp,
            "payload": {"stripe_customer_id": customer, "value": "1"},
        }
    )


@pytest.fixture(scope="module")
def metered(client: stripe.StripeClient) -> str:
    """A customer, and a meter of tokens."""
    client.v1.billing.meters.create(
        {
            "display_name": "Tokens",
            "event_name": "tokens",
            "default_aggregation": {"formula": "sum"},
        }
    )
    return client.v1.customers.create().id


def test_a_wrong_key_is_refused(fake: Fake) -> None:
    with pytest.raises(stripe.AuthenticationError, match="Invalid API Key"):
        fake.client("sk_test_of_another").v1.customers.create()
    assert httpx.get(f"{fake.base_url}/v1/customers").status_code == 401


def test_errors_have_stripes_shape_and_a_request_id(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.retrieve("pi_unknown")

    error = refused.value
    assert (error.http_status, error.code, error.param) == (404, "resource_missing", "id")
    assert error.request_id is not None and error.request_id.startswith("req_")


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"amount": 1000}, "currency"),
        ({"currency": "usd"}, "amount"),
        ({"amount": 49, "currency": "usd"}, "amount"),
        ({"amount": "ten", "currency": "usd"}, "amount"),
        ({"amount": 1000, "currency": "usd", "amonut": 1}, "amonut"),
        ({"amount": 1000, "currency": "usd", "customer": "cus_no"}, "customer"),
        ({"amount": 1000, "currency": "usd", "off_session": True}, "off_session"),
        ({"amount": 1000, "currency": "usd", "expand": ["nothing"]}, "expand"),
    ],
)
def test_parameters_that_make_no_sense(
    client: stripe.StripeClient, parameters: dict[str, object], param: str
) -> None:
    before = client.v1.payment_intents.list({"limit": 100}).data

    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.create(parameters)  # type: ignore[arg-type]  # wrong on purpose

    assert (refused.value.http_status, refused.value.param) == (400, param)
    if param != "expand":
        assert client.v1.payment_intents.list({"limit": 100}).data == before


def test_the_same_key_does_a_thing_once(client: stripe.StripeClient) -> None:
    wanted = {"amount": 1000, "currency": "usd", "metadata": {"nested": "value"}}
    first = client.v1.payment_intents.create(wanted, {"idempotency_key": "once"})  # type: ignore[arg-type]
    again = client.v1.payment_intents.create(wanted, {"idempotency_key": "once"})  # type: ignore[arg-type]

    assert again.id == first.id
    assert again.last_response is not None
    assert again.last_response.headers["idempotent-replayed"] == "true"
    with pytest.raises(stripe.IdempotencyError, match="same parameters"):
        client.v1.payment_intents.create(
            {"amount": 2000, "currency": "usd"}, {"idempotency_key": "once"}
        )


def test_a_declined_card_is_declined_again_by_the_same_key(client: stripe.StripeClient) -> None:
    declined = []
    for _ in range(2):
        with pytest.raises(stripe.CardError) as refused:
            client.v1.payment_intents.create(
                {
                    "amount": 1000,
                    "currency": "usd",
                    "payment_method": "pm_card_chargeDeclined",
                    "confirm": True,
                },
                {"idempotency_key": "declined"},
            )
        assert refused.value.error is not None
        assert refused.value.error.payment_intent is not None
        declined.append(refused.value.error.payment_intent.id)

    assert declined[0] == declined[1]


def test_a_call_that_never_started_may_be_sent_again(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.payment_intents.create({"amount": 1, "currency": "usd"}, {"idempotency_key": "k"})

    made = client.v1.payment_intents.create(
        {"amount": 100, "currency": "usd"}, {"idempotency_key": "k"}
    )
    assert made.amount == 100


def test_an_answer_that_is_lost_is_found_again_by_its_key(fake: Fake) -> None:
    fake.control("troubles", method="POST", path="/v1/customers", lost=True)
    with pytest.raises(stripe.APIConnectionError):
        fake.client().v1.customers.create({"name": "Lost"}, {"idempotency_key": "lost"})

    found = fake.client().v1.customers.create({"name": "Lost"}, {"idempotency_key": "lost"})

    listed = fake.client().v1.customers.list({"limit": 100}).data
    assert [each.id for each in listed if each.name == "Lost"] == [found.id]


def test_the_stock_client_retries_by_itself_and_charges_once(fake: Fake) -> None:
    fake.control("troubles", method="POST", path="/v1/payment_intents", lost=True, status=502)
    client = fake.client(max_network_retries=1)
    customer = client.v1.customers.create().id

    client.v1.payment_intents.create(
        {
            "amount": 1000,
            "currency": "usd",
            "customer": customer,
            "payment_method": "pm_card_visa",
            "confirm": True,
        }
    )

    assert len(client.v1.payment_intents.list({"customer": customer}).data) == 1
    assert len(client.v1.charges.list({"customer": customer}).data) == 1


def test_lists_come_in_pages_newest_first(client: stripe.StripeClient) -> None:
    made = [client.v1.products.create({"name": f"number {n}"}).id for n in range(5)]

    first = client.v1.products.list({"limit": 2})
    second = client.v1.products.list({"limit": 2, "starting_after": first.data[-1].id})

    assert [each.id for each in first.data + second.data] == made[:0:-1]
    assert first.has_more and second.has_more
    walked = [each.id for each in client.v1.products.list({"limit": 2}).auto_paging_iter()]
    assert walked[:5] == made[::-1]
    back = client.v1.products.list({"limit": 1, "ending_before": second.data[0].id})
    assert [each.id for each in back.data] == [first.data[-1].id]
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.products.list({"limit": 101})


def test_an_identifier_counts_once_in_a_day(
    fake: Fake, client: stripe.StripeClient, metered: str
) -> None:
    now = int(fake.control("clock")["now"])
    meter_event(client, metered, "the same", now)

    with pytest.raises(stripe.InvalidRequestError, match="already exists with identifier") as again:
        meter_event(client, metered, "the same", now - 60)

    assert again.value.http_status == 400
    assert again.value.headers is not None
    assert again.value.headers["stripe-should-retry"] == "false"
    later = int(fake.control("clock", advance_s=DAY_S)["now"])
    meter_event(client, metered, "the same", later)


@pytest.mark.parametrize(
    ("offset_s", "taken"),
    [(-35 * DAY_S + 60, True), (-35 * DAY_S - 60, False), (4 * 60, True), (6 * 60, False)],
)
def test_events_of_another_time_are_refused(
    fake: Fake, client: stripe.StripeClient, metered: str, offset_s: int, taken: bool
) -> None:
    at = int(fake.control("clock")["now"]) + offset_s

    if taken:
        assert meter_event(client, metered, f"at {offset_s}", at).timestamp == at
        return
    with pytest.raises(stripe.InvalidRequestError) as refused:
        meter_event(client, metered, f"at {offset_s}", at)
    assert refused.value.param == "timestamp"


def test_the_hosted_page_pays_or_says_why_not(client: stripe.StripeClient) -> None:
    session = client.v1.checkout.sessions.create(
        {
            "success_url": "http://127.0.0.1:1/done?session={CHECKOUT_SESSION_ID}",
            "line_items": [
                {
                    "price_data": {
                        "currency": "usd",
                        "unit_amount": 1250,
                        "product_data": {"name": "<b>Credit</b>"},
                    }
                }
            ],
        }
    )
    assert session.url is not None

    page = httpx.get(session.url)
    refused = httpx.post(session.url, data={"payment_method": "pm_card_chargeDeclined"})
    paid = httpx.post(session.url, data={"payment_method": "pm_card_visa"})

    assert page.status_code == 200
    assert "12.50 USD" in page.text and "&lt;b&gt;Credit" in page.text
    assert "Your card was declined." in refused.text
    assert paid.status_code == 303
    assert paid.headers["location"] == f"http://127.0.0.1:1/done?session={session.id}"
    assert client.v1.checkout.sessions.retrieve(session.id).payment_status == "paid"
    assert "complete" in httpx.get(session.url).text


def test_a_session_expires_by_the_clock(fake: Fake, client: stripe.StripeClient) -> None:
    session = client.v1.checkout.sessions.create(
        {"mode": "setup", "currency": "usd", "success_url": "http://127.0.0.1:1/"}
    )
    fake.control("clock", advance_s=DAY_S + 1)

    assert client.v1.checkout.sessions.retrieve(session.id).status == "expired"


def test_its_memory_can_outlive_it(tmp_path: Path) -> None:
    port = free_port()
    with fake_running(*state_argument(tmp_path), port=port) as first:
        made = first.client().v1.customers.create({"name": "Ada"}, {"idempotency_key": "ada"})
    with fake_running(*state_argument(tmp_path), port=port) as second:
        again = second.client().v1.customers.create({"name": "Ada"}, {"idempotency_key": "ada"})
        kept = second.client().v1.customers.retrieve(made.id)

    assert (again.id, kept.name) == (made.id, "Ada")
    assert API_KEY not in (tmp_path / "stripe.json").read_text()
