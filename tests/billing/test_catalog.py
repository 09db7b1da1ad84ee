"""A model is sold at the price in force, never for nothing by accident, and history stays."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connections

from billing.contracts import ModelNotFound, Quote, ServiceTier, UsageCounts
from billing.facade import (
    hold,
    models_for_sale,
    publish_offer,
    quote,
    reconcile,
    set_price,
    settle,
)
from tenants.facade import create_organization
from tests.billing.cast import Tenant, make_offer, refusals, used

INTERACTIVE, BATCH = ServiceTier.INTERACTIVE, ServiceTier.BATCH


def fresh(name: str) -> str:
    """A public id of this test's own."""
    return f"{name}-{uuid4().hex[:12]}"


def sold(public_id: str, token_class: str, since: str, until: str | None = None) -> UUID:
    """A price of 1,000 over a span of time, both ends so long ago; returns its row's id."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_price"
            " (id, offer_id, book_id, tier, token_class, currency, price_micros_per_mtok, valid)"
            " SELECT uuidv7(), o.id, b.id, 'interactive', %s, 'USD', 1000, tstzrange("
            " now() - %s::interval, now() - %s::interval)"
            " FROM billing_offer o, (SELECT id FROM billing_price_book LIMIT 1) b"
            " WHERE public_id = %s RETURNING id",
            [token_class, since, until, public_id],
        )
        price_id: UUID = cursor.fetchone()[0]
    return price_id


def test_a_quote_has_the_prices_in_force_and_their_rows(acme: Tenant) -> None:
    model = make_offer(fresh("priced"), 50_000, 5_000, 250_000)

    quoted = quote(acme.organization_id, acme.project_id, model, INTERACTIVE)

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

    quoted = quote(acme.organization_id, acme.project_id, model, INTERACTIVE)

    assert quoted.cached_input_micros_per_mtok == 50_000
    assert quoted.cached_input_price_id == quoted.input_price_id


@pytest.mark.parametrize(("input_", "output"), [(None, None), (1, None), (None, 1)])
def test_a_model_without_a_price_is_not_for_sale(
    acme: Tenant, input_: int | None, output: int | None
) -> None:
    model = make_offer(fresh("unpriced"), input_, 0, output)

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, acme.project_id, model, INTERACTIVE)
    assert model not in dict(models_for_sale(acme.organization_id))


def test_a_model_without_batch_prices_is_not_sold_in_batch(acme: Tenant) -> None:
    model = make_offer(fresh("interactive"), 2, 2, 2)

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, acme.project_id, model, BATCH)

    make_offer(model, 1, 1, 1, tier=BATCH)
    assert quote(acme.organization_id, acme.project_id, model, BATCH).output_micros_per_mtok == 1


def test_a_price_of_zero_is_a_price(acme: Tenant) -> None:
    model = make_offer(fresh("free"), 0, 0, 0)

    assert (
        quote(acme.organization_id, acme.project_id, model, INTERACTIVE).input_micros_per_mtok == 0
    )
    assert model in dict(models_for_sale(acme.organization_id))


def test_prices_in_another_currency_are_not_this_tenants(acme: Tenant) -> None:
    model = make_offer(fresh("euros"))
    for token_class in ("input", "output"):
        set_price(model, INTERACTIVE, token_class, 1, currency="EUR")

    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, acme.project_id, model, INTERACTIVE)


@pytest.mark.parametrize("name", ["", "no-such-model", "x' OR '1'='1", "a\0b", "x" * 10_000])
def test_an_unknown_model_is_not_found(acme: Tenant, name: str) -> None:
    with pytest.raises(ModelNotFound):
        quote(acme.organization_id, acme.project_id, name, INTERACTIVE)


def test_a_new_price_holds_for_new_quotes_only(acme: Tenant) -> None:
    model = make_offer(fresh("changing"), 10, 10, 10)
    old = quote(acme.organization_id, acme.project_id, model, INTERACTIVE)
    request = acme.quoted(old).held()

    make_offer(model, 1_000, 1_000, 1_000)
    settle([used(request, UsageCounts(60, 0, 40))])

    assert (
        quote(acme.organization_id, acme.project_id, model, INTERACTIVE).input_micros_per_mtok
        == 1_000
    )
    told = acme.receipt(request)
    assert (told.charge_pico, told.input_micros_per_mtok) == (1_000, 10)


def test_setting_the_price_in_force_again_adds_no_row(acme: Tenant) -> None:
    model = make_offer(fresh("same"), 10, 10, 10)

    first = quote(acme.organization_id, acme.project_id, model, INTERACTIVE).input_price_id
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
    before = quote(acme.organization_id, acme.project_id, model, INTERACTIVE).offer

    publish_offer(model, "Better name", "headrace", 4096, 512)

    after = quote(acme.organization_id, acme.project_id, model, INTERACTIVE).offer
    assert after.offer_id == before.offer_id
    assert (after.display_name, after.context_tokens_max) == ("Better name", 4096)


def test_two_prices_never_hold_at_once(acme: Tenant) -> None:
    model = make_offer(fresh("overlap"), 1, 1, 1)
    offer_id = quote(acme.organization_id, acme.project_id, model, INTERACTIVE).offer.offer_id

    with (
        connections["housekeeper"].cursor() as cursor,
        pytest.raises(IntegrityError, match="billing_price_one_at_a_time"),
    ):
        cursor.execute(
            "INSERT INTO billing_price"
            " (id, offer_id, book_id, tier, token_class, currency, price_micros_per_mtok, valid)"
            " SELECT uuidv7(), %s, b.id, 'interactive', 'input', 'USD', 5,"
            " tstzrange(now() + interval '1 day', NULL)"
            " FROM billing_price_book b LIMIT 1",
            [offer_id],
        )


def test_a_hold_of_another_currency_than_the_accounts_is_refused(acme: Tenant) -> None:
    model = make_offer(fresh("euros"))
    for token_class in ("input", "output"):
        set_price(model, INTERACTIVE, token_class, 1, currency="EUR")
    european = create_organization(f"european-{uuid4().hex[:12]}", "european", "EUR")
    in_euros = quote(european.organization_id, None, model, INTERACTIVE)

    outcomes = hold([acme.quoted(in_euros).request()])

    assert in_euros.currency == "EUR"
    assert refusals(outcomes) == ["insufficient_quota"]


def test_a_quote_is_honoured_for_a_moment_after_its_prices_changed(acme: Tenant) -> None:
    model = make_offer(fresh("moving"), 10, 10, 10)
    moments_old = acme.quoted(quote(acme.organization_id, acme.project_id, model, INTERACTIVE))
    make_offer(model, 1_000, 1_000, 1_000)

    [outcome] = hold([moments_old.request()])

    assert (outcome.refusal, outcome.amount_pico) == (None, 1_000)


def test_a_quote_whose_prices_went_longer_ago_is_stale(acme: Tenant) -> None:
    model = make_offer(fresh("gone"))
    old_input = sold(model, "input", "1 day", "1 minute")
    old_output = sold(model, "output", "1 day", "1 minute")
    make_offer(model, 1_000, None, 1_000)
    now = quote(acme.organization_id, acme.project_id, model, INTERACTIVE)

    outcomes = hold(
        [
            acme.quoted(replace(now, output_price_id=old_output)).request(),
            acme.quoted(replace(now, cached_input_price_id=old_input)).request(),
            acme.quoted(now).request(),
        ]
    )

    assert refusals(outcomes) == ["stale_quote", "stale_quote", None]


FORGERIES: list[Callable[[Quote, Quote], Quote]] = [
    lambda ours, other: replace(ours, input_micros_per_mtok=0),
    lambda ours, other: replace(ours, output_micros_per_mtok=1),
    lambda ours, other: replace(ours, tier=BATCH),
    lambda ours, other: replace(ours, input_price_id=uuid4()),
    lambda ours, other: replace(ours, input_price_id=other.input_price_id),
    lambda ours, other: replace(ours, output_price_id=other.output_price_id),
    lambda ours, other: replace(ours, cached_input_price_id=other.cached_input_price_id),
    lambda ours, other: replace(ours, cached_input_price_id=ours.output_price_id),
    lambda ours, other: replace(ours, output_price_id=ours.cached_input_price_id),
    lambda ours, other: replace(other, offer=ours.offer, output_price_id=ours.output_price_id),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_only_prices_of_one_offer_and_tier_are_held(
    acme: Tenant, forge: Callable[[Quote, Quote], Quote]
) -> None:
    ours = quote(
        acme.organization_id, acme.project_id, make_offer(fresh("ours"), 50, 5, 250), INTERACTIVE
    )
    other = quote(
        acme.organization_id, acme.project_id, make_offer(fresh("other"), 50, 5, 250), INTERACTIVE
    )

    outcomes = hold([acme.quoted(forge(ours, other)).request(), acme.quoted(ours).request()])

    assert refusals(outcomes) == ["stale_quote", None]
    assert reconcile() == []


def test_the_input_price_stands_in_only_where_cached_input_has_none(acme: Tenant) -> None:
    model = make_offer(fresh("cached"), 1_000, None, 1_000)
    before = acme.quoted(quote(acme.organization_id, acme.project_id, model, INTERACTIVE))
    [own_price_unset] = hold([before.request()])
    set_price(model, INTERACTIVE, "cached_input", 10)
    [own_price_new] = hold([before.request()])
    cached = make_offer(fresh("cached-long"), 1_000, None, 1_000)
    sold(cached, "cached_input", "1 minute")
    now = quote(acme.organization_id, acme.project_id, cached, INTERACTIVE)
    stood_in = replace(now, cached_input_price_id=now.input_price_id)
    [own_price_old] = hold([acme.quoted(stood_in).request()])

    assert refusals([own_price_unset, own_price_new]) == [None, None]
    assert refusals([own_price_old]) == ["stale_quote"]


def test_what_is_held_are_the_catalogs_prices_whatever_the_quote_says(acme: Tenant) -> None:
    ours = quote(
        acme.organization_id, acme.project_id, make_offer(fresh("ours"), 50, 5, 250), INTERACTIVE
    )
    # The amount is that of the dearer input price, so it does not give this lie away.
    request = acme.quoted(replace(ours, cached_input_micros_per_mtok=0)).held()

    settle([used(request, UsageCounts(0, 60, 0))])

    assert acme.receipt(request).charge_pico == 60 * 5
