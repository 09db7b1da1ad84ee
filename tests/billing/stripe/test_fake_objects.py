"""The fake's objects are Stripe's: stripe-python's own models find every field as they say."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import stripe

from tests.billing.stripe.fake_process import Fake, fake_running
from tests.billing.stripe.typed import assert_typed

SUCCESS = "http://127.0.0.1:1/done?session={CHECKOUT_SESSION_ID}"


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    """One fake for all of these: none of them looks at another's objects."""
    with fake_running() as running:
        yield running


@pytest.fixture(scope="module")
def client(fake: Fake) -> stripe.StripeClient:
    """The stock client."""
    return fake.client()


@pytest.fixture
def customer(client: stripe.StripeClient) -> stripe.Customer:
    """A customer with a card that pays."""
    made = client.v1.customers.create({"email": "ada@acme.example", "name": "Ada"})
    card = client.v1.payment_methods.attach("pm_card_visa", {"customer": made.id})
    return client.v1.customers.update(
        made.id, {"invoice_settings": {"default_payment_method": card.id}}
    )


def default_card(customer: stripe.Customer) -> str:
    """What its invoices are paid with."""
    assert customer.invoice_settings is not None
    return str(customer.invoice_settings.default_payment_method)


def checkout(client: stripe.StripeClient, customer: str) -> stripe.checkout.Session:
    """An open session for $25."""
    return client.v1.checkout.sessions.create(
        {
            "mode": "payment",
            "customer": customer,
            "success_url": SUCCESS,
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {
                        "currency": "usd",
                        "unit_amount": 2500,
                        "product_data": {"name": "Credit"},
                    },
                }
            ],
            "payment_intent_data": {"metadata": {"a": "b"}, "setup_future_usage": "off_session"},
        }
    )


def test_the_check_sees_what_is_wrong(customer: stripe.Customer) -> None:
    shown = customer.to_dict() | {"created": "today", "colour": "red", "tax_exempt": 7}
    del shown["livemode"]
    wrong = stripe.Customer.construct_from(shown, None)

    with pytest.raises(AssertionError) as found:
        assert_typed(wrong)
    for field in ("created", "colour", "tax_exempt", "livemode"):
        assert f"Customer.{field}" in str(found.value)


def test_customers_and_cards(client: stripe.StripeClient, customer: stripe.Customer) -> None:
    cards = client.v1.customers.payment_methods.list(customer.id)

    assert_typed(customer)
    assert_typed(cards.data[0])
    assert cards.data[0].card is not None and cards.data[0].card.last4 == "4242"
    assert_typed(client.v1.customers.retrieve(customer.id))
    assert client.v1.customers.delete(customer.id).deleted
    assert client.v1.customers.retrieve(customer.id).deleted


def test_a_card_set_up_for_later(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create()
    intent = client.v1.setup_intents.create(
        {"customer": customer.id, "payment_method": "pm_card_visa", "confirm": True}
    )

    assert_typed(intent)
    assert intent.status == "succeeded"
    assert client.v1.payment_methods.retrieve(str(intent.payment_method)).customer == customer.id


def test_a_payment_its_charge_and_its_refund(
    client: stripe.StripeClient, customer: stripe.Customer
) -> None:
    intent = client.v1.payment_intents.create(
        {
            "amount": 1999,
            "currency": "usd",
            "customer": customer.id,
            "payment_method": default_card(customer),
            "confirm": True,
            "off_session": True,
            "metadata": {"top_up": "1"},
            "expand": ["latest_charge"],
        }
    )
    refund = client.v1.refunds.create({"payment_intent": intent.id, "amount": 500})

    assert_typed(intent)
    assert (intent.status, intent.amount_received) == ("succeeded", 1999)
    assert isinstance(intent.latest_charge, stripe.Charge)
    assert_typed(intent.latest_charge)
    assert_typed(refund)
    charge = client.v1.charges.retrieve(intent.latest_charge.id)
    assert (charge.amount_refunded, charge.refunded) == (500, False)
    rest = client.v1.refunds.create({"payment_intent": intent.id})
    assert rest.amount == 1499
    with pytest.raises(stripe.InvalidRequestError, match="already been refunded"):
        client.v1.refunds.create({"payment_intent": intent.id})


@pytest.mark.parametrize(
    ("card", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_authenticationRequired", "authentication_required", "authentication_required"),
    ],
)
def test_a_card_that_refuses(
    client: stripe.StripeClient, card: str, code: str, decline_code: str
) -> None:
    with pytest.raises(stripe.CardError) as refused:
        client.v1.payment_intents.create(
            {
                "amount": 1000,
                "currency": "usd",
                "payment_method": card,
                "confirm": True,
                "off_session": True,
            }
        )

    error = refused.value
    assert (error.http_status, error.code) == (402, code)
    assert error.error is not None and error.error.decline_code == decline_code
    assert error.error.payment_intent is not None
    intent = client.v1.payment_intents.retrieve(error.error.payment_intent.id)
    assert_typed(intent)
    assert intent.status == "requires_payment_method"
    assert_typed(client.v1.charges.retrieve(str(intent.latest_charge)))


def test_a_payment_that_the_customer_must_confirm(fake: Fake, client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.create(
        {
            "amount": 1000,
            "currency": "usd",
            "payment_method": "pm_card_authenticationRequired",
            "confirm": True,
        }
    )

    assert_typed(intent)
    assert intent.status == "requires_action"
    fake.control(f"payment_intents/{intent.id}/authenticate")
    assert client.v1.payment_intents.retrieve(intent.id).status == "succeeded"
    with pytest.raises(stripe.InvalidRequestError, match="cannot cancel"):
        client.v1.payment_intents.cancel(intent.id)


def test_a_payment_that_is_cancelled(client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.create({"amount": 1000, "currency": "usd"})
    cancelled = client.v1.payment_intents.cancel(intent.id)

    assert_typed(cancelled)
    assert cancelled.status == "canceled"


def test_a_checkout(fake: Fake, client: stripe.StripeClient, customer: stripe.Customer) -> None:
    session = checkout(client, customer.id)
    assert_typed(session)
    assert (session.status, session.amount_total) == ("open", 2500)

    fake.control(f"checkout/{session.id}/complete")
    done = client.v1.checkout.sessions.retrieve(
        session.id, {"expand": ["line_items", "payment_intent"]}
    )

    assert_typed(done)
    assert (done.status, done.payment_status) == ("complete", "paid")
    assert isinstance(done.payment_intent, stripe.PaymentIntent)
    assert done.payment_intent.metadata.to_dict() == {"a": "b"}
    card = client.v1.payment_methods.retrieve(str(done.payment_intent.payment_method))
    assert card.customer == customer.id


def test_products_and_prices(client: stripe.StripeClient) -> None:
    product = client.v1.products.create({"name": "Tokens"})
    price = client.v1.prices.create(
        {"product": product.id, "currency": "usd", "unit_amount_decimal": Decimal("0.005")}
    )

    assert_typed(product)
    assert_typed(price)


def test_meters_and_what_they_count(client: stripe.StripeClient, customer: stripe.Customer) -> None:
    meter = client.v1.billing.meters.create(
        {
            "display_name": "Tokens",
            "event_name": "typed_tokens",
            "default_aggregation": {"formula": "sum"},
        }
    )
    now = client.v1.products.create({"name": "of this second"}).created
    event = client.v1.billing.meter_events.create(
        {
            "event_name": "typed_tokens",
            "identifier": "one",
            "timestamp": now - 3600,
            "payload": {"stripe_customer_id": customer.id, "value": "123"},
        }
    )
    hour = now // 3600 * 3600
    sums = client.v1.billing.meters.event_summaries.list(
        meter.id,
        {
            "customer": customer.id,
            "start_time": hour - 7200,
            "end_time": hour + 3600,
            "value_grouping_window": "hour",
        },
    )

    assert_typed(meter)
    assert_typed(event)
    assert_typed(sums.data[0])
    assert sum(int(each.aggregated_value) for each in sums.data) == 123


def test_the_stream_of_meter_events(
    client: stripe.StripeClient, fake: Fake, customer: stripe.Customer
) -> None:
    client.v1.billing.meters.create(
        {
            "display_name": "Stream",
            "event_name": "streamed_tokens",
            "default_aggregation": {"formula": "sum"},
        }
    )
    session = client.v2.billing.meter_event_session.create()
    events: list[Any] = [
        {
            "event_name": "streamed_tokens",
            "identifier": f"streamed-{number}",
            "payload": {"stripe_customer_id": customer.id, "value": "1"},
        }
        for number in range(101)
    ]
    stream = fake.client(session.authentication_token).v2.billing.meter_event_stream

    stream.create({"events": events[:100]})

    assert_typed(session)
    with pytest.raises(stripe.InvalidRequestError, match="1 to 100"):
        stream.create({"events": events})
    with pytest.raises(stripe.InvalidRequestError, match="already exists"):
        stream.create({"events": events[-2:]})
    one = client.v2.billing.meter_events.create(events[-1])
    assert_typed(one)


def test_credit_grants(client: stripe.StripeClient, customer: stripe.Customer) -> None:
    grant = client.v1.billing.credit_grants.create(
        {
            "customer": customer.id,
            "amount": {"type": "monetary", "monetary": {"value": 1000, "currency": "usd"}},
            "applicability_config": {"scope": {"price_type": "metered"}},
            "category": "promotional",
            "name": "Welcome",
        }
    )
    balance = client.v1.billing.credit_balance_summary.retrieve(
        {"customer": customer.id, "filter": {"type": "applicability_scope"}}
    )

    assert_typed(grant)
    assert_typed(balance)
    monetary = balance.balances[0].available_balance.monetary
    assert monetary is not None and monetary.value == 1000
    assert client.v1.billing.credit_grants.void_grant(grant.id).voided_at


def test_an_invoice_from_draft_to_paid(
    client: stripe.StripeClient, customer: stripe.Customer
) -> None:
    draft = client.v1.invoices.create({"customer": customer.id, "auto_advance": False})
    item = client.v1.invoice_items.create(
        {"customer": customer.id, "invoice": draft.id, "amount": 700, "currency": "usd"}
    )
    finalized = client.v1.invoices.finalize_invoice(draft.id)
    paid = client.v1.invoices.pay(draft.id)

    for each in (draft, item, finalized, paid):
        assert_typed(each)
    assert (finalized.status, finalized.amount_due) == ("open", 700)
    assert (paid.status, paid.amount_paid, paid.amount_remaining) == ("paid", 700, 0)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.invoices.void_invoice(draft.id)


def test_events_of_what_happened(client: stripe.StripeClient, customer: stripe.Customer) -> None:
    endpoint = client.v1.webhook_endpoints.create(
        {"url": "http://127.0.0.1:9/nobody", "enabled_events": ["product.created"]}
    )
    events = client.v1.events.list({"type": "customer.created", "limit": 1})

    assert_typed(endpoint)
    assert endpoint.secret is not None and endpoint.secret.startswith("whsec_")
    assert_typed(events.data[0])
    assert events.data[0].data.object["id"] == customer.id
    client.v1.webhook_endpoints.delete(endpoint.id)
