"""Slips in price lists are seen: mistaken units, output below input, prices that jump."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.catalog.price_checks import JUMP_FACTOR, display, out_of_bounds, warnings
from billing.catalog.price_document import parse_price_document
from billing.contracts import PriceBookInvalid, PriceEntry, ServiceTier, TokenClass
from billing.pricing import counts_of, parse_per_million, per_million_string, per_token_string

INTERACTIVE, BATCH = ServiceTier.INTERACTIVE, ServiceTier.BATCH
INPUT, CACHED, OUTPUT = TokenClass.INPUT, TokenClass.CACHED_INPUT, TokenClass.OUTPUT
PRICES = {
    ("m", INTERACTIVE, INPUT): 50_000,
    ("m", INTERACTIVE, CACHED): 5_000,
    ("m", INTERACTIVE, OUTPUT): 250_000,
    ("m", BATCH, INPUT): 25_000,
    ("m", BATCH, OUTPUT): 125_000,
}


def warned(changed: dict[tuple[str, ServiceTier, TokenClass], int]) -> str:
    """What is said of a change to the prices above."""
    return "; ".join(warnings({**PRICES, **changed}, changed, PRICES, "USD"))


def test_a_usual_price_raises_no_eyebrow() -> None:
    assert warned({("m", INTERACTIVE, INPUT): 60_000, ("m", BATCH, OUTPUT): 130_000}) == ""


@pytest.mark.parametrize(
    ("token_class", "price", "said"),
    [
        (OUTPUT, 40_000, "output costs less than input"),
        (CACHED, 60_000, "cached input costs more than input"),
        (INPUT, 20_000, "batch input costs more than interactive"),
        (INPUT, 50_000 * 10**5, "is very dear"),
        (OUTPUT, 250_000 * JUMP_FACTOR, "was 0.25 USD per million tokens"),
        (CACHED, 5, "is it a price per token?"),
    ],
)
def test_a_slip_is_warned_of(token_class: TokenClass, price: int, said: str) -> None:
    assert said in warned({("m", INTERACTIVE, token_class): price})


def test_a_price_of_zero_is_meant() -> None:
    zeros = {("m", INTERACTIVE, one): 0 for one in (INPUT, CACHED, OUTPUT)}

    assert warnings(zeros, zeros, {}, "USD") == ()


def test_half_a_price_list_is_warned_of() -> None:
    changed = {("new", INTERACTIVE, INPUT): 50_000}

    assert "is not sold" in "; ".join(warnings(changed, changed, {}, "USD"))


def test_a_price_is_shown_per_million_and_per_token() -> None:
    assert display(50_000, "USD") == ("0.05 USD per million tokens = 0.00000005 USD per token")
    assert (per_million_string(12_500), per_token_string(12_500)) == ("0.0125", "0.0000000125")


@given(st.integers(min_value=0, max_value=10_000_000_000))
def test_a_price_per_million_reads_back_exactly(micros: int) -> None:
    assert parse_per_million(per_million_string(micros)) == micros
    assert not out_of_bounds(micros)


@pytest.mark.parametrize("text", ["0.00000005", "0.0000001", "5e-8", "1e3", "-", "", "1,5", "nan"])
def test_a_price_per_token_where_one_per_million_belongs_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"per token|not an amount"):
        parse_per_million(text)


def test_cache_writes_are_counted_apart_and_once() -> None:
    counts = counts_of(2_000, 500, 0, 300)

    assert (
        counts.uncached_input_tokens,
        counts.cached_input_tokens,
        counts.cache_write_tokens,
    ) == (1_200, 500, 300)
    assert counts.prompt_tokens == 2_000
    with pytest.raises(ValueError, match="must not exceed"):
        counts_of(700, 500, 0, 300)


DOCUMENT = """{"currency": "EUR", "note": "autumn", "prices": {"org/m:q4": {
    "interactive": {"input": "0.05", "cached_input": 0.005, "output": 1},
    "batch": {"output": null}}}}"""


def test_a_document_is_read_as_the_decimals_that_are_written() -> None:
    draft = parse_price_document(DOCUMENT)

    assert (draft.currency, draft.note, draft.organization_id) == ("EUR", "autumn", None)
    assert draft.entries == (
        PriceEntry("org/m:q4", INTERACTIVE, INPUT, 50_000),
        PriceEntry("org/m:q4", INTERACTIVE, CACHED, 5_000),
        PriceEntry("org/m:q4", INTERACTIVE, OUTPUT, 1_000_000),
        PriceEntry("org/m:q4", BATCH, OUTPUT, None),
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "an object"),
        ("{}", "an object"),
        ('{"prices": {}}', "prices"),
        ('{"prices": {"m": {"interactive": {"input": "5e-8"}}}}', "m, interactive, input"),
        ('{"prices": {"m": {"interactive": {"input": 0.00000005}}}}', "m, interactive, input"),
        ('{"prices": {"m": {"interactive": {"input": "0.0000000001"}}}}', "per token"),
        ('{"prices": {"m": {"interactive": {"input": true}}}}', "m, interactive, input"),
        ('{"prices": {"m": {"interactive": {"input": ["1"]}}}}', "m, interactive, input"),
        ('{"prices": {"m": {"interactive": {"thought": "1"}}}}', "unknown 'thought'"),
        ('{"prices": {"m": {"nightly": {"input": "1"}}}}', "unknown 'nightly'"),
        ('{"prices": {"m": "1"}}', "m: an object"),
        ('{"price": {}}', "unknown 'price'"),
        ('{"currency": "usd", "prices": {}}', "capital letters"),
        ('{"note": [5], "prices": {}}', "note"),
        ('{"prices": {"m": {"batch": {"input": "1", "input": "2"}}}}', "twice"),
    ],
)
def test_a_document_that_is_not_quite_one_is_refused(document: str, said: str) -> None:
    with pytest.raises(PriceBookInvalid, match=said):
        parse_price_document(document)
