"""Prices and costs are exact integers, whatever the size."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.contracts import PICO, Offer, Quote, ServiceTier, UsageCounts
from billing.facade import (
    cost_pico,
    counts_of,
    decimal_string,
    estimate_pico,
    parse_decimal,
)

TOKENS = st.integers(min_value=0, max_value=10**9)
PRICES = st.integers(min_value=0, max_value=10**10)


def quoted(input_: int, cached_input: int, output: int) -> Quote:
    """A quote with these unit prices."""
    offer = Offer(uuid4(), "small", "Small", "headrace", 8192, 2048, datetime.now(UTC))
    ids = (uuid4(), uuid4(), uuid4())
    return Quote(offer, ServiceTier.INTERACTIVE, "USD", *ids, input_, cached_input, output)


def test_a_million_single_tokens_at_two_cents_a_million_cost_exactly_two_cents() -> None:
    quote = quoted(parse_decimal("0.02") // 10**6, 0, 0)

    total = sum(cost_pico(quote, UsageCounts(1, 0, 0)) for _ in range(1_000_000))

    assert total == parse_decimal("0.02")
    assert decimal_string(total) == "0.02"


def test_a_fully_cached_call_pays_the_cached_price_for_the_cached_tokens_only() -> None:
    quote = quoted(3_000_000, 300_000, 15_000_000)

    counts = counts_of(prompt_tokens=17_111, cached_tokens=17_102, output_tokens=0)

    assert counts == UsageCounts(9, 17_102, 0)
    assert cost_pico(quote, counts) == 9 * 3_000_000 + 17_102 * 300_000


def test_reasoning_is_part_of_the_output_and_not_added_to_it() -> None:
    counts = counts_of(prompt_tokens=10, cached_tokens=0, output_tokens=500)

    assert counts.output_tokens == 500
    assert cost_pico(quoted(0, 0, 2), counts) == 1000


def test_more_cached_than_prompt_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="cached"):
        counts_of(prompt_tokens=5, cached_tokens=6, output_tokens=0)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        estimate_pico(quoted(1, 1, 1), -1, 0)
    with pytest.raises(ValueError, match="negative"):
        counts_of(prompt_tokens=0, cached_tokens=0, output_tokens=-1)


def test_amounts_are_written_as_decimals_without_a_trace_of_floats() -> None:
    assert decimal_string(1_615_000_000) == "0.001615"
    assert decimal_string(0) == "0.00"
    assert decimal_string(-5 * PICO) == "-5.00"
    assert decimal_string(1) == "0.000000000001"
    assert decimal_string(10**37) == "1" + "0" * 25 + ".00"


@pytest.mark.parametrize(
    "text", ["", "-", "1.", ".5", "1e3", "\u0661", "0.0000000000001", " 1", "1,5"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        parse_decimal(text)


@given(st.integers(min_value=-(10**38) + 1, max_value=10**38 - 1))
def test_an_amount_reads_back_as_it_was_written(amount_pico: int) -> None:
    text = decimal_string(amount_pico)

    assert parse_decimal(text) == amount_pico
    assert "e" not in text.lower()


@given(PRICES, PRICES, PRICES, TOKENS, TOKENS, TOKENS)
def test_no_request_within_its_estimate_costs_more_than_it(
    input_: int, cached_input: int, output: int, uncached: int, cached: int, generated: int
) -> None:
    quote = quoted(input_, cached_input, output)

    estimate = estimate_pico(quote, uncached + cached, generated)

    assert cost_pico(quote, UsageCounts(uncached, cached, generated)) <= estimate


@given(PRICES, st.lists(st.tuples(TOKENS, TOKENS, TOKENS), max_size=20))
def test_the_cost_of_a_sum_is_the_sum_of_the_costs(
    price: int, parts: list[tuple[int, int, int]]
) -> None:
    quote = quoted(price, price // 10, price * 5)

    whole = UsageCounts(*(sum(part[i] for part in parts) for i in range(3)))

    assert cost_pico(quote, whole) == sum(cost_pico(quote, UsageCounts(*part)) for part in parts)
