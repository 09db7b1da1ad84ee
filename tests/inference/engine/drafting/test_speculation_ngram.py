"""Lookup in a sequence's own tokens: what followed the longest earlier match, kept up cheaply."""

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.drafting import ngram_drafts
from inference.engine.drafting.ngram_drafts import (
    MATCH_TOKENS_MAX,
    MATCH_TOKENS_MIN,
    PLACES_MAX,
    PairIndex,
)


def continuation(token_ids: list[int], count: int) -> list[int]:
    return PairIndex().continuation(token_ids, count)


def by_search(token_ids: list[int], count: int) -> list[int]:
    """The same, looked up by comparing everything with everything."""
    last = len(token_ids) - 1
    best, best_length = None, MATCH_TOKENS_MIN - 1
    places = [
        place
        for place in range(last - 1, 0, -1)
        if token_ids[place - 1 : place + 1] == token_ids[last - 1 :]
    ]
    for place in places[:PLACES_MAX]:
        length = 0
        while length <= place and token_ids[place - length] == token_ids[last - length]:
            length += 1
        if min(length, MATCH_TOKENS_MAX) > best_length:
            best, best_length = place, min(length, MATCH_TOKENS_MAX)
    if best is None:
        return []
    whole = list(token_ids)
    for ahead in range(count):
        whole.append(whole[best + 1 + ahead])
    return whole[last + 1 :]


def test_what_followed_the_same_words_is_guessed() -> None:
    assert continuation([1, 2, 3, 4, 5, 9, 2, 3], 2) == [4, 5]


def test_nothing_is_guessed_where_nothing_repeats() -> None:
    assert continuation([1, 2, 3, 4, 5], 4) == []
    assert continuation([1, 2, 1], 4) == []
    assert continuation([1], 4) == []


def test_the_longest_match_goes_before_the_latest() -> None:
    assert continuation([7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2], 1) == [30]


def test_the_latest_of_equal_matches_is_guessed() -> None:
    assert continuation([1, 2, 30, 1, 2, 40, 1, 2], 1) == [40]


def test_a_short_period_goes_on_beyond_its_own_end() -> None:
    assert continuation([5, 1, 2, 3, 1, 2, 3], 7) == [1, 2, 3, 1, 2, 3, 1]
    assert continuation([6, 6, 6], 4) == [6, 6, 6, 6]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 9), st.data())
def test_a_growing_index_finds_what_a_search_finds(
    token_ids: list[int], count: int, data: st.DataObject
) -> None:
    index = PairIndex()
    lengths = data.draw(st.lists(st.integers(1, len(token_ids)), unique=True).map(sorted))
    for length in lengths:
        assert index.continuation(token_ids[:length], count) == by_search(token_ids[:length], count)


def test_of_an_overlong_prompt_the_end_is_searched() -> None:
    index = PairIndex()
    most = ngram_drafts.INDEXED_TOKENS_MAX
    token_ids = [1, 2, 3, *range(10, most + 10), 8, 9, 4, 1, 2]

    assert index.continuation(token_ids, 1) == []
    assert index.continuation([*token_ids, 5, 8, 9], 1) == [4]
