"""A model is sold at the price in force, never for nothing by accident, and history stays."""

from uuid import uuid4

import pytest
from django.db import IntegrityError, connections

from billing.contracts import ModelNotFound, ServiceTier, UsageCounts
from billing.facade import hold, offers, publish_offer, quote, set_price, settle
from tests.billing.cast import Tenant, make_offer, refusals, used

INTERACTIVE, BATCH = ServiceTier.INTERACTIVE, ServiceTier.BATCH


def fresh(name: str) -> str:
    """A public id of this test's own."""
    return f"{name}-{uuid4().hex[:12]}"


def test_a_quote_has_the_prices_in_force_and_their_rows(acme: Tenant) -> None:
    model = make_offer(fresh("priced"), 50_000, 5_000, 250_000)

    quoted = quote(acme.organization_id, model, INTERACTIVE)

    assert quoted.offer.public_id == model
    assert quoted.offer.context_tokens_max == 8192
    assert quoted.currency == "USD"
    assert (
        quoted.input_micros_per_mtok,
        quoted.cached_input_micros_per_mtok,
        quoted.output_micros_per_mtok,
    ) == (50_000, 5_000, 250_000)
    assert len({quoted.input_price_id, quoted.cached_input_price_id, quoted.output_price_id}) == 3


def test_cached_input_costs_as_much_as_input_unless_it_has_a_price(acme: Tenant) -> None:
    model = make_offer(fresh("uncached"), 50_000, None, 250_000)

    quoted = quote(acme.organization_id, model, INTERACTIVE)

    assert quoted.cached_input_micros_per_mtok == 50_000
    assert quoted.cached_input_price_id == quoted.input_price_id


@pytest.mark.parametrize(("input_", "output"), [(None, None), (1, None), (None, 1)])
def test_a_model_without_a_price_is_not_for_sale(
    acme: Tenant, input_: int | None, output: int | None
) -> None:
    model = make_offer(fresh("unpriced"), input_, 0, output)

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, model, INTERACTIVE)
    assert model not in {offer.public_id for offer in offers(acme.organization_id)}


def test_a_model_without_batch_prices_is_not_sold_in_batch(acme: Tenant) -> None:
    model = make_offer(fresh("interactive"), 2, 2, 2)

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, model, BATCH)

    make_offer(model, 1, 1, 1, tier=BATCH)
    assert quote(acme.organization_id, model, BATCH).output_micros_per_mtok == 1


def test_a_price_of_zero_is_a_price(acme: Tenant) -> None:
    model = make_offer(fresh("free"), 0, 0, 0)

    assert quote(acme.organization_id, model, INTERACTIVE).input_micros_per_mtok == 0
    assert model in {offer.public_id for offer in offers(acme.organization_id)}


def test_prices_in_another_currency_are_not_this_tenants(acme: Tenant) -> None:
    model = make_offer(fresh("euros"))
    for token_class in ("input", "output"):
        set_price(model, INTERACTIVE, token_class, 1, currency="EUR")

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, model, INTERACTIVE)


@pytest.mark.parametrize("name", ["", "no-such-model", "x' OR '1'='1", "a\0b", "x" * 10_000])
def test_an_unknown_model_is_not_found(acme: Tenant, name: str) -> None:
    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, name, INTERACTIVE)


def test_a_new_price_holds_for_new_quotes_only(acme: Tenant) -> None:
    model = make_offer(fresh("changing"), 10, 10, 10)
    old = quote(acme.organization_id, model, INTERACTIVE)
    request = Tenant(acme.organization_id, acme.project_id, acme.key_id, acme.secret, old).held()

    make_offer(model, 1_000, 1_000, 1_000)
    settle([used(request, UsageCounts(60, 0, 40))])

    assert quote(acme.organization_id, model, INTERACTIVE).input_micros_per_mtok == 1_000
    told = acme.receipt(request)
    assert (told.charge_pico, told.input_micros_per_mtok) == (1_000, 10)


def test_setting_the_price_in_force_again_adds_no_row(acme: Tenant) -> None:
    model = make_offer(fresh("same"), 10, 10, 10)

    first = quote(acme.organization_id, model, INTERACTIVE).input_price_id
    again = set_price(model, INTERACTIVE, "input", 10)

    assert first == again


@pytest.mark.parametrize("price", [-1, 10_000_000_001])
def test_an_absurd_price_is_refused(django_database: object, price: int) -> None:
    model = make_offer(fresh("absurd"))

    with pytest.raises(ValueError, match="out of bounds"):
        set_price(model, INTERACTIVE, "input", price)


def test_only_known_models_and_classes_have_prices(django_database: object) -> None:
    with pytest.raises(ModelNotFound):
        set_price("no-such-model", INTERACTIVE, "input", 1)
    with pytest.raises(ValueError, match="thought"):
        set_price(make_offer(fresh("classy")), INTERACTIVE, "thought", 1)


def test_publishing_again_updates_what_is_said_and_keeps_the_id(acme: Tenant) -> None:
    model = make_offer(fresh("renamed"), 1, 1, 1)
    before = quote(acme.organization_id, model, INTERACTIVE).offer

    publish_offer(model, "Better name", "headrace", 4096, 512)

    after = quote(acme.organization_id, model, INTERACTIVE).offer
    assert after.offer_id == before.offer_id
    assert (after.display_name, after.context_tokens_max) == ("Better name", 4096)


def test_two_prices_never_hold_at_once(acme: Tenant) -> None:
    model = make_offer(fresh("overlap"), 1, 1, 1)
    offer_id = quote(acme.organization_id, model, INTERACTIVE).offer.offer_id

    with (
        connections["housekeeper"].cursor() as cursor,
        pytest.raises(IntegrityError, match="billing_price_one_at_a_time"),
    ):
        cursor.execute(
            "INSERT INTO billing_price"
            " (id, offer_id, tier, token_class, currency, price_micros_per_mtok, valid)"
            " VALUES (uuidv7(), %s, 'interactive', 'input', 'USD', 5,"
            " tstzrange(now() + interval '1 day', NULL))",
            [offer_id],
        )


def test_a_hold_of_another_currency_than_the_accounts_is_refused(acme: Tenant) -> None:
    from dataclasses import replace

    request = acme.request()

    outcomes = hold([replace(request, quote=replace(request.quote, currency="EUR"))])

    assert refusals(outcomes) == ["insufficient_quota"]
