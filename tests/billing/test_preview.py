"""A draft shows what usage would have come to, exactly, before anybody pays it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from billing.contracts import (
    DraftBook,
    PreviewLine,
    PriceBookInvalid,
    PriceEntry,
    ServiceTier,
    TokenClass,
    UsageCounts,
    UsageExportInvalid,
)
from billing.facade import (
    preview_events,
    preview_export,
    publish_book,
    quote,
    reprice,
    set_price,
    settle,
)
from tests.billing.cast import Tenant, make_offer, used
from tests.books import rows

INTERACTIVE = ServiceTier.INTERACTIVE
INPUT, CACHED, WRITE, OUTPUT = (
    TokenClass.INPUT,
    TokenClass.CACHED_INPUT,
    TokenClass.CACHE_WRITE,
    TokenClass.OUTPUT,
)


def fresh() -> str:
    """A public id of this test's own."""
    return f"previewed-{uuid4().hex[:12]}"


def sold(tenant: Tenant, model: str, counts: UsageCounts) -> None:
    """A settled request of these counts."""
    quoted = tenant.quoted(quote(tenant.organization_id, tenant.project_id, model, INTERACTIVE))
    request = quoted.held(counts.prompt_tokens, counts.output_tokens)
    settle([replace(used(request, counts), model_served=model)])


def draft(model: str, prices: dict[TokenClass, int], tenant: Tenant | None = None) -> DraftBook:
    """New prices of a model."""
    return DraftBook(
        tuple(PriceEntry(model, INTERACTIVE, one, price) for one, price in prices.items()),
        organization_id=tenant.organization_id if tenant else None,
    )


def previewed(book: DraftBook, model: str) -> list[PreviewLine]:
    """The last hour of a model under a draft."""
    now = datetime.now(UTC)
    lines = preview_events(book, now - timedelta(hours=1), now + timedelta(minutes=1))
    return [line for line in lines if line.model == model]


def amounts(lines: Sequence[PreviewLine]) -> dict[str, tuple[int | None, int | None]]:
    """Now and by the draft, by tenant."""
    return {line.tenant: (line.now_pico, line.draft_pico) for line in lines}


def test_events_are_priced_under_the_draft_by_tenant(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 10, 1, 20)
    sold(acme, model, UsageCounts(50, 10, 40))
    sold(acme, model, UsageCounts(7, 0, 1))
    sold(globex, model, UsageCounts(1, 1, 1))

    lines = previewed(draft(model, {INPUT: 100, CACHED: 30, OUTPUT: 7}), model)

    assert amounts(lines) == {
        str(acme.organization_id): (57 * 10 + 10 + 41 * 20, 57 * 100 + 10 * 30 + 41 * 7),
        str(globex.organization_id): (31, 137),
    }
    ours = next(line for line in lines if line.tenant == str(acme.organization_id))
    assert (ours.requests, ours.counts) == (2, UsageCounts(57, 10, 41))


def test_what_a_draft_does_not_price_stays_and_cached_input_follows(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 20)
    sold(acme, model, UsageCounts(50, 10, 40))

    [line] = previewed(draft(model, {INPUT: 100}), model)

    assert line.draft_pico == 60 * 100 + 40 * 20


def test_the_lists_draft_leaves_a_tenants_own_prices_alone(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 20)
    set_price(model, INTERACTIVE, "output", 2, organization_id=acme.organization_id)
    for tenant in (acme, globex):
        sold(tenant, model, UsageCounts(1, 0, 1))

    lines = previewed(draft(model, {INPUT: 100, OUTPUT: 100}), model)
    own = previewed(draft(model, {OUTPUT: 5}, tenant=acme), model)

    assert amounts(lines) == {
        str(acme.organization_id): (12, 102),
        str(globex.organization_id): (30, 200),
    }
    assert amounts(own) == {str(acme.organization_id): (12, 15)}


def test_a_price_change_in_the_span_is_in_what_it_cost(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 10)
    sold(acme, model, UsageCounts(1, 0, 0))
    make_offer(model, 30)
    sold(acme, model, UsageCounts(1, 0, 0))

    [line] = previewed(draft(model, {INPUT: 20}), model)

    assert (line.now_pico, line.draft_pico) == (40, 40)


def test_a_preview_is_what_repricing_comes_to(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 20)
    for counts in (UsageCounts(50, 10, 40), UsageCounts(3, 2, 1)):
        sold(acme, model, counts)
    book = draft(model, {INPUT: 7, OUTPUT: 9})
    [line] = previewed(book, model)

    publish_book(book, "test", accept_warnings=True)
    now = datetime.now(UTC)
    [moved] = reprice(model, now - timedelta(hours=1), now + timedelta(minutes=1), "why", "test")

    assert line.now_pico is not None
    assert line.draft_pico == line.now_pico - moved.given_back_pico


def test_a_preview_takes_in_what_stays_in_force(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 5, 20)
    sold(acme, model, UsageCounts(1, 1, 1))
    make_offer(model, None, 2, None)
    book = draft(model, {INPUT: 7})
    [line] = previewed(book, model)

    publish_book(book, "test", accept_warnings=True)
    now = datetime.now(UTC)
    [moved] = reprice(model, now - timedelta(hours=1), now + timedelta(minutes=1), "why", "test")

    assert (line.now_pico, line.draft_pico) == (35, 7 + 2 + 20)
    assert moved.given_back_pico == 6


def test_a_preview_changes_nothing(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, None, 20)
    before = rows("SELECT count(*) FROM billing_price_book")

    previewed(draft(model, {INPUT: 7}), model)

    assert rows("SELECT count(*) FROM billing_price_book") == before
    with pytest.raises(PriceBookInvalid, match="no preview"):
        previewed(DraftBook((PriceEntry(model, INTERACTIVE, INPUT, None),)), model)


LITELLM = (
    "team_alias,model,prompt_tokens,cache_read_input_tokens,cache_creation_input_tokens,"
    "completion_tokens,spend\n"
    "search,gpt-4o-mini,2000,500,300,100,0.0016150000000000001\n"
    "search,gpt-4o-mini,10,0,0,1,0\n"
    "ads,gpt-4o-mini,10,,,1,0\n"
)
OPENAI = (
    "project_id,model,batch,num_model_requests,input_tokens,input_cached_tokens,output_tokens\n"
    "proj_1,gpt-4o-mini,False,7,2000,800,100\n"
    "proj_1,gpt-4o-mini,True,1,10,0,1\n"
)
ANTHROPIC = (
    "\ufeffmodel,input_tokens,cache_read_input_tokens,cache_creation_input_tokens,output_tokens\n"
    "gpt-4o-mini,1200,500,300,100\n"
)
SPREADSHEET = "Model,Prompt_Tokens,Completion_Tokens\ngpt-4o-mini,1200.0,100.0\n"


def exported(text: str, model: str) -> dict[tuple[str, ServiceTier], tuple[int, UsageCounts]]:
    """What is read of an export whose one model is ours, by owner and tier."""
    book = draft(model, {INPUT: 10, OUTPUT: 20})
    preview = preview_export(book, text.splitlines(keepends=True), {"gpt-4o-mini": model})
    assert preview.rows_refused == 0
    assert {line.model for line in preview.lines} == {model}
    return {(line.tenant, line.tier): (line.requests, line.counts) for line in preview.lines}


def test_litellms_names_are_read(django_database: object) -> None:
    assert exported(LITELLM, make_offer(fresh())) == {
        ("search", INTERACTIVE): (2, UsageCounts(1_210, 500, 101, 300)),
        ("ads", INTERACTIVE): (1, UsageCounts(10, 0, 1)),
    }


def test_openais_names_are_read(django_database: object) -> None:
    assert exported(OPENAI, make_offer(fresh())) == {
        ("proj_1", INTERACTIVE): (7, UsageCounts(1_200, 800, 100)),
        ("proj_1", ServiceTier.BATCH): (1, UsageCounts(10, 0, 1)),
    }


def test_anthropics_input_excludes_what_was_cached(django_database: object) -> None:
    assert exported(ANTHROPIC, make_offer(fresh())) == {
        ("", INTERACTIVE): (1, UsageCounts(1_200, 500, 100, 300))
    }


def test_a_spreadsheets_whole_numbers_are_read(django_database: object) -> None:
    assert exported(SPREADSHEET, make_offer(fresh())) == {
        ("", INTERACTIVE): (1, UsageCounts(1_200, 0, 100))
    }


def test_an_export_is_priced_as_now_and_by_the_draft(django_database: object) -> None:
    model = make_offer(fresh(), 10, 1, 20)
    book = draft(model, {INPUT: 100, WRITE: 125})

    preview = preview_export(book, LITELLM.splitlines(keepends=True), {"gpt-4o-mini": model})

    [ads, search] = preview.lines
    assert (ads.now_pico, ads.draft_pico) == (120, 1_020)
    assert search.now_pico == 1_510 * 10 + 500 * 1 + 101 * 20
    assert search.draft_pico == 1_210 * 100 + 500 * 1 + 300 * 125 + 101 * 20


def test_a_model_without_a_price_is_not_free(django_database: object) -> None:
    model = make_offer(fresh())

    preview = preview_export(draft(model, {INPUT: 1}), LITELLM.splitlines(keepends=True))

    assert {(line.model, line.now_pico, line.draft_pico) for line in preview.lines} == {
        ("gpt-4o-mini", None, None)
    }


@pytest.mark.parametrize(
    "row", [",5,5", "m,-5,5", "m,5.5,5", "m,1e3,5", "m,nan,5", "m,5,five", "m,10000000000000000,1"]
)
def test_a_row_that_cannot_be_true_is_refused_with_its_line(
    django_database: object, row: str
) -> None:
    model = make_offer(fresh())
    lines = ["model,prompt_tokens,completion_tokens\n", "m,1,1\n", f"{row}\n"]

    preview = preview_export(draft(model, {INPUT: 1}), lines)

    assert (preview.rows_read, preview.rows_refused) == (1, 1)
    assert preview.refusals[0].startswith("line 3: ")


def test_more_cached_than_there_was_is_refused(django_database: object) -> None:
    model = make_offer(fresh())
    lines = ["model,prompt_tokens,cached_tokens,completion_tokens\n", "m,17102,17111,1\n"]

    preview = preview_export(draft(model, {INPUT: 1}), lines)

    assert (preview.rows_read, preview.rows_refused) == (0, 1)


@pytest.mark.parametrize("header", ["", "model,prompt_tokens\n", "prompt_tokens,output_tokens\n"])
def test_an_export_without_its_columns_is_refused(django_database: object, header: str) -> None:
    model = make_offer(fresh())

    with pytest.raises(UsageExportInvalid, match="needs columns"):
        preview_export(draft(model, {INPUT: 1}), [header, "a,1\n"])
