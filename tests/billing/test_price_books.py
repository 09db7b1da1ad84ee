"""Prices come in versions, for now or later, for all or for one, and never change the past."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, ProgrammingError, connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.contracts import (
    DraftBook,
    ModelNotFound,
    PriceBookInvalid,
    PriceEntry,
    PricesSuspicious,
    PricesUnchanged,
    PublishedBook,
    ServiceTier,
    TokenClass,
    UsageCounts,
)
from billing.facade import hold, publish_book, quote, reconcile, set_price, settle
from tests.billing.cast import Tenant, at_once, make_offer, refusals, used
from tests.books import rows

INTERACTIVE, BATCH = ServiceTier.INTERACTIVE, ServiceTier.BATCH
INPUT, CACHED, WRITE, OUTPUT = (
    TokenClass.INPUT,
    TokenClass.CACHED_INPUT,
    TokenClass.CACHE_WRITE,
    TokenClass.OUTPUT,
)
SOON = timedelta(days=1)


def fresh() -> str:
    """A public id of this test's own."""
    return f"booked-{uuid4().hex[:12]}"


def published(
    model: str,
    prices: dict[TokenClass, int | None],
    effective_at: datetime | None = None,
    organization_id: UUID | None = None,
    tier: ServiceTier = INTERACTIVE,
) -> PublishedBook:
    """A book of a model's prices, whatever looks odd about them."""
    entries = tuple(PriceEntry(model, tier, one, price) for one, price in prices.items())
    draft = DraftBook(entries, organization_id=organization_id, note="a test")
    return publish_book(draft, "test", effective_at, accept_warnings=True)


def spans(model: str, token_class: TokenClass) -> list[tuple[int, datetime, datetime | None]]:
    """Price, start and end of the list's rows that ever hold, in order."""
    return [
        (int(micros), since, until)
        for micros, since, until in rows(
            "SELECT p.price_micros_per_mtok, lower(p.valid), upper(p.valid)"
            " FROM billing_price p JOIN billing_offer o ON o.id = p.offer_id"
            " WHERE o.public_id = %s AND p.token_class = %s AND NOT isempty(p.valid)"
            " ORDER BY p.valid",
            model,
            token_class.value,
        )
    ]


def price_of(tenant: Tenant, model: str) -> tuple[int, int, int]:
    """What input, cached input and output cost the tenant now."""
    quoted = quote(tenant.organization_id, tenant.project_id, model, INTERACTIVE)
    return (
        quoted.input_micros_per_mtok,
        quoted.cached_input_micros_per_mtok,
        quoted.output_micros_per_mtok,
    )


def test_a_book_has_a_version_a_note_and_an_author(acme: Tenant) -> None:
    model = make_offer(fresh())

    first = published(model, {INPUT: 50_000, OUTPUT: 250_000})
    second = published(model, {INPUT: 60_000})

    assert second.version > first.version
    assert price_of(acme, model) == (60_000, 60_000, 250_000)
    [(note, author, at)] = rows(
        "SELECT note, created_by, effective_at FROM billing_price_book WHERE id = %s",
        second.book_id,
    )
    assert (note, author, at) == ("a test", "test", second.effective_at)


def test_a_book_says_only_what_changes(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)

    book = published(model, {INPUT: 50_000, OUTPUT: 300_000})

    assert len(book.price_ids) == 1
    with pytest.raises(PricesUnchanged):
        published(model, {INPUT: 50_000, OUTPUT: 300_000})


def test_announced_prices_hold_from_their_day_on(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    then = datetime.now(UTC) + SOON

    published(model, {INPUT: 70_000}, then)

    assert price_of(acme, model)[0] == 50_000
    [(now_price, _, until), (then_price, since, open_end)] = spans(model, INPUT)
    assert (now_price, until, then_price, since, open_end) == (50_000, then, 70_000, then, None)


def test_a_price_set_meanwhile_holds_until_the_announced_one(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    then = datetime.now(UTC) + SOON
    published(model, {INPUT: 70_000}, then)

    published(model, {INPUT: 60_000})

    assert price_of(acme, model)[0] == 60_000
    assert [(price, until) for price, _, until in spans(model, INPUT)][1:] == [
        (60_000, then),
        (70_000, None),
    ]


def test_an_announced_price_can_be_announced_anew_before_it_holds(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    then = datetime.now(UTC) + SOON
    published(model, {INPUT: 70_000}, then)

    published(model, {INPUT: 80_000}, then)

    assert [(price, since) for price, since, _ in spans(model, INPUT)][1:] == [(80_000, then)]


def test_prices_never_change_in_the_past(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    before = spans(model, INPUT)

    with pytest.raises(PriceBookInvalid, match="past"):
        published(model, {INPUT: 1_000}, datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(PriceBookInvalid, match="within"):
        published(model, {INPUT: 1_000}, datetime.now(UTC) + timedelta(days=10_000))

    assert spans(model, INPUT) == before


@pytest.mark.parametrize(
    "change",
    [
        "price_micros_per_mtok = 1",
        "valid = tstzrange(lower(valid), lower(valid) + interval '1 microsecond')",
        "valid = 'empty'",
        "valid = tstzrange(lower(valid), NULL)",
    ],
)
def test_no_role_edits_a_price_that_held(acme: Tenant, change: str) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    make_offer(model, 60_000)
    [old, _] = spans(model, INPUT)

    with (
        connections["housekeeper"].cursor() as cursor,
        pytest.raises((IntegrityError, ProgrammingError)),
    ):
        cursor.execute(
            f"UPDATE billing_price SET {change} WHERE price_micros_per_mtok = 50000 AND offer_id ="
            " (SELECT id FROM billing_offer WHERE public_id = %s)",
            [model],
        )

    assert spans(model, INPUT)[0] == old


def test_a_tenants_own_price_goes_before_the_lists(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)

    published(model, {INPUT: 40_000}, organization_id=acme.organization_id)

    assert price_of(acme, model) == (40_000, 5_000, 250_000)
    assert price_of(globex, model) == (50_000, 5_000, 250_000)


def test_a_tenants_own_prices_are_in_its_audit_log(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)

    book = published(model, {INPUT: 40_000}, organization_id=acme.organization_id)

    [(kind, details)] = rows(
        "SELECT actor_kind, details FROM tenants_audit_log"
        " WHERE action = 'price.set' AND target_id = %s",
        str(book.book_id),
    )
    told = json.loads(details) if isinstance(details, str) else details
    assert kind == "operator"
    assert told["micros_per_mtok"] == {f"{model} interactive input": 40_000}


def test_ending_a_tenants_own_price_brings_back_the_lists(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)
    published(model, {INPUT: 40_000}, organization_id=acme.organization_id)

    published(model, {INPUT: None}, organization_id=acme.organization_id)

    assert price_of(acme, model)[0] == 50_000


def test_ending_a_price_of_the_list_takes_the_model_off_sale(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)

    published(model, {OUTPUT: None})

    with pytest.raises(ModelNotFound):
        price_of(acme, model)


def test_a_model_can_be_for_sale_to_one_tenant_only(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh())

    published(model, {INPUT: 40_000, OUTPUT: 50_000}, organization_id=acme.organization_id)

    assert price_of(acme, model) == (40_000, 40_000, 50_000)
    with pytest.raises(ModelNotFound):
        price_of(globex, model)


def test_a_request_at_a_tenants_own_price_is_held_charged_and_reconciled(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    set_price(model, INTERACTIVE, "output", 2, organization_id=acme.organization_id)
    ours = acme.quoted(quote(acme.organization_id, acme.project_id, model, INTERACTIVE))

    request = ours.held(60, 40)
    settle([used(request, UsageCounts(60, 0, 40))])

    told = acme.receipt(request)
    assert (told.held_pico, told.charge_pico, told.output_micros_per_mtok) == (680, 680, 2)
    assert reconcile() == []


def test_nobody_is_sold_at_another_tenants_price(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 10)
    published(model, {INPUT: 1, OUTPUT: 1}, organization_id=acme.organization_id)
    published(model, {CACHED: 1}, organization_id=acme.organization_id)
    ours = quote(acme.organization_id, acme.project_id, model, INTERACTIVE)
    theirs = quote(globex.organization_id, globex.project_id, model, INTERACTIVE)

    outcomes = hold([globex.quoted(ours).request(), globex.quoted(theirs).request()])

    assert refusals(outcomes) == ["stale_quote", None]


def test_a_price_change_in_mid_request_leaves_its_price_alone(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request = acme.quoted(quote(acme.organization_id, None, model, INTERACTIVE)).held(60, 40)

    published(model, {INPUT: 1_000, CACHED: 1_000, OUTPUT: 1_000})
    set_price(model, INTERACTIVE, "input", 2_000, organization_id=acme.organization_id)
    settle([used(request, UsageCounts(50, 10, 40))])

    [(charge, input_, output)] = rows(
        "SELECT charge_pico, input_micros_per_mtok, output_micros_per_mtok"
        " FROM billing_usage_event WHERE request_id = %s",
        request.request_id,
    )
    assert (charge, input_, output) == (1_000, 10, 10)
    assert reconcile() == []


def test_cache_writes_cost_what_input_does_unless_set(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)
    before = quote(acme.organization_id, None, model, INTERACTIVE)

    published(model, {WRITE: 62_500})
    after = quote(acme.organization_id, None, model, INTERACTIVE)

    assert (before.cache_write_micros_per_mtok, before.cache_write_price_id) == (
        50_000,
        before.input_price_id,
    )
    assert after.cache_write_micros_per_mtok == 62_500


def test_what_looks_like_a_slip_is_not_published_unless_accepted(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)
    slip = DraftBook((PriceEntry(model, INTERACTIVE, INPUT, 300_000),))

    with pytest.raises(PricesSuspicious, match="output costs less than input"):
        publish_book(slip, "test")
    assert price_of(acme, model)[0] == 50_000

    book = publish_book(slip, "test", accept_warnings=True)
    assert book.warnings == (f"{model}: interactive output costs less than input",)
    assert price_of(acme, model)[0] == 300_000


def test_a_price_beyond_all_bounds_is_refused_whatever_is_accepted(acme: Tenant) -> None:
    model = make_offer(fresh(), 50_000, 5_000, 250_000)

    for absurd in (-1, 50_000 * 10**6):
        with pytest.raises(PriceBookInvalid, match="out of bounds"):
            published(model, {INPUT: absurd})

    assert price_of(acme, model)[0] == 50_000


def test_a_book_needs_entries_each_once_of_known_models(django_database: object) -> None:
    model = make_offer(fresh())
    entry = PriceEntry(model, INTERACTIVE, INPUT, 1)

    with pytest.raises(PriceBookInvalid, match="1 to"):
        publish_book(DraftBook(()), "test")
    with pytest.raises(PriceBookInvalid, match="twice"):
        publish_book(DraftBook((entry, entry)), "test")
    with pytest.raises(ModelNotFound):
        publish_book(DraftBook((PriceEntry("no-such-model", BATCH, INPUT, 1),)), "test")


Announcement = tuple[int, int | None]
"""From which hour on, and the price; None ends it."""


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([None, 10_000, 20_000])), max_size=8))
def test_the_price_of_any_moment_is_the_last_one_announced_for_it_or_before(
    django_database: object, announcements: list[Announcement]
) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    start = datetime.now(UTC)
    announced: dict[int, int | None] = {0: 50_000}

    def expected(hour: int) -> int | None:
        return announced[max(at for at in announced if at <= hour)]

    for hour, price in announcements:
        try:
            published(model, {INPUT: price}, start + timedelta(hours=hour))
        except PricesUnchanged:
            assert expected(hour) == price
        else:
            before = expected(hour)
            assert before != price
            announced[hour] = price
            later = sorted(at for at in announced if at > hour)
            while price is not None and before is None and later and announced[later[0]] is None:
                del announced[later.pop(0)]  # what fills a gap holds until the next price

    held = spans(model, INPUT)
    for hour in range(6):
        at = start + timedelta(hours=hour, minutes=30)
        in_force = [p for p, since, until in held if since <= at and (until is None or at < until)]
        assert in_force == ([] if expected(hour) is None else [expected(hour)])


def test_books_published_at_once_get_versions_of_their_own(django_database: object) -> None:
    models = [make_offer(fresh()) for _ in range(8)]

    books = at_once([lambda m=m: published(m, {INPUT: 1}) for m in models])  # type: ignore[misc]

    assert len({book.version for book in books}) == len(models)


def test_one_price_set_at_once_by_many_is_set_once(django_database: object) -> None:
    model = make_offer(fresh())

    ids = at_once([lambda: set_price(model, INTERACTIVE, "input", 7)] * 8)

    assert len(set(ids)) == 1
    assert [price for price, _, _ in spans(model, INPUT)] == [7]
