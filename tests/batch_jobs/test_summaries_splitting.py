"""Cutting long documents: nothing lost, nothing repeated, every piece and every merge fits."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_jobs.summaries.splitting import (
    MERGE_SLACK_TOKENS,
    MergeImpossible,
    plan_tree,
    split,
)


def by_bytes(texts: Sequence[str]) -> list[int]:
    """The most tokens a byte-level vocabulary can need."""
    return [len(text.encode()) for text in texts]


def by_words(texts: Sequence[str]) -> list[int]:
    """A vocabulary of words, for which a whole may count more or less than its parts."""
    return [len(text.split()) + text.count("  ") for text in texts]


texts = st.text(st.sampled_from("ab .!?。\n#-é😀\t"), min_size=1, max_size=600)


@given(texts, st.integers(4, 400))
def test_pieces_are_the_text_and_fit(text: str, budget: int) -> None:
    for count in (by_bytes, by_words):
        pieces = list(split(text, budget, count))

        assert "".join(text[piece.start : piece.end] for piece in pieces) == text
        assert all(piece.tokens <= budget or piece.end - piece.start == 1 for piece in pieces)
        assert [piece.tokens for piece in pieces] == count(
            [text[piece.start : piece.end] for piece in pieces]
        )


def test_a_text_larger_than_a_window_is_cut_without_a_gap() -> None:
    text = "".join(f"Paragraph {number} says something. And more.\n\n" for number in range(20_000))
    pieces = list(split(text, 500, by_words))

    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert max(piece.tokens for piece in pieces) <= 500
    assert all(text[: piece.end].endswith("\n\n") for piece in pieces)
    # Cutting at paragraphs must not cost many more pieces than there have to be.
    assert len(pieces) <= 1.1 * by_words([text])[0] / 500


@pytest.mark.parametrize("line", ["\n# ", "a\n", "A b. ", "a.\n\nb c "])
def test_what_is_short_is_counted_together(line: str) -> None:
    text, counted = line * 20_000, list[str]()

    def noting(texts: Sequence[str]) -> list[int]:
        counted.extend(texts)
        return by_bytes(texts)

    pieces = list(split(text, 4000, noting))

    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert len(counted) < len(text) / 50
    assert sum(map(len, counted)) < 2.5 * len(text)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("# One\n" + "word " * 60 + "\n# Two\n" + "word " * 60, "# Two"),
        ("word " * 60 + "\n\n" + "other " * 50, "other"),
        ("word " * 60 + "end. " + "Next " * 50, "Next"),
    ],
)
def test_pieces_end_where_the_structure_does(text: str, ends: str) -> None:
    pieces = list(split(text, 400, by_bytes))

    assert text[pieces[1].start :].lstrip().startswith(ends)


def test_words_are_only_cut_when_one_alone_is_too_long() -> None:
    text = "short " * 30 + "x" * 400 + " short" * 30
    pieces = list(split(text, 100, by_bytes))

    cut = [text[piece.start : piece.end] for piece in pieces]
    assert "".join(cut) == text
    assert all(part.endswith(("x", " ", "t")) for part in cut)
    assert sum("x" in part for part in cut) <= 6


@given(st.integers(2, 20_000), st.integers(8, 800), st.integers(100, 9_000))
def test_every_merge_of_a_tree_fits_and_reaches_every_piece(
    pieces: int, summary_tokens: int, budget: int
) -> None:
    if budget < 2 * (summary_tokens + MERGE_SLACK_TOKENS):
        with pytest.raises(MergeImpossible):
            plan_tree(pieces, summary_tokens, budget)
        return
    levels = plan_tree(pieces, summary_tokens, budget)

    assert sum(levels[0]) == pieces
    for below, level in itertools.pairwise(levels):
        assert sum(level) == len(below)
    assert len(levels[-1]) == 1
    for level in levels:
        assert max(level) * (summary_tokens + MERGE_SLACK_TOKENS) <= budget
        assert max(level) - min(level) <= 1


def test_a_single_piece_needs_no_tree() -> None:
    assert plan_tree(1, 800, 100) == []
