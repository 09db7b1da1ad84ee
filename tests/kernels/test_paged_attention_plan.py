"""The cut of a step into tiles and splits covers everything once and fills the card."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.paged_attention_plan import (
    PROGRAMS_PER_PROCESSOR,
    SPLITS_MAX,
    Card,
    cut,
    split_tokens,
    splits_max,
    tile_shapes,
)

H200 = Card(processors=132, native_float8=True)
SHARED = st.tuples(st.integers(1, 32), st.sampled_from((2, 4)))


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100_000)), min_size=1, max_size=40),
    SHARED,
    st.integers(1, 16),
)
def test_every_query_lies_in_one_tile_and_every_key_in_one_split(
    lengths: list[tuple[int, int]], shared: tuple[int, int], kv_heads: int
) -> None:
    counts = [count for count, _ in lengths]
    contexts = [count + earlier for count, earlier in lengths]

    groups = cut(counts, contexts, kv_heads=kv_heads, shapes=tile_shapes(*shared), card=H200)

    covered = sorted(
        (sequence, token)
        for group in groups
        for sequence, offset in group.places
        for token in range(offset, min(offset + group.shape.tokens, counts[sequence]))
    )
    assert covered == [(s, token) for s, count in enumerate(counts) for token in range(count)]
    for group in groups:
        longest = max(contexts[sequence] for sequence, _ in group.places)
        assert (group.splits - 1) * group.split_tokens < longest
        assert longest <= group.splits * group.split_tokens
        assert group.splits <= SPLITS_MAX


@given(SHARED)
def test_a_tile_holds_its_rows(shared: tuple[int, int]) -> None:
    for shape in tile_shapes(*shared):
        assert 1 <= shape.tokens * shared[0] <= shape.rows
        assert shape.rows & (shape.rows - 1) == 0


def test_a_decode_beside_a_prefill_takes_a_tile_of_its_own_size() -> None:
    groups = cut([1, 256], [900, 256], kv_heads=8, shapes=tile_shapes(4, 2), card=H200)

    assert [(group.shape.rows, len(group.places)) for group in groups] == [(16, 1), (64, 16)]


def test_one_long_context_fills_the_card() -> None:
    (group,) = cut([1], [131_072], kv_heads=8, shapes=tile_shapes(4, 2), card=H200)

    programs = group.splits * 8
    assert PROGRAMS_PER_PROCESSOR * 132 - 8 <= programs <= PROGRAMS_PER_PROCESSOR * 132


def test_many_sequences_are_not_split() -> None:
    (group,) = cut([1] * 128, [4096] * 128, kv_heads=8, shapes=tile_shapes(4, 2), card=H200)

    assert group.splits == 1


def test_one_long_context_among_short_ones_is_split() -> None:
    contexts = [100_000] + [500] * 31

    (group,) = cut([1] * 32, contexts, kv_heads=8, shapes=tile_shapes(4, 2), card=H200)

    assert group.splits == splits_max(32, 8, H200) == 3
    assert group.split_tokens >= 500


def test_short_contexts_are_never_split() -> None:
    assert split_tokens([200], 1, 64, H200) == 256


@pytest.mark.parametrize("sharing", [0, 33])
def test_unknown_sharing_is_refused(sharing: int) -> None:
    with pytest.raises(ValueError, match="query heads per KV head"):
        tile_shapes(sharing, 2)
