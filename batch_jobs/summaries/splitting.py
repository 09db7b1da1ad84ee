"""How a document longer than the context is cut, and in what tree its parts' summaries are merged.

Pure; tokens are counted by whoever calls. Pieces follow one another without a gap, so nothing is
lost or repeated; they end where the text's structure does, as far as the budget lets them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

CountTokens = Callable[[Sequence[str]], list[int]]
"""Tokens of each text. Counts of parts need not add up exactly to the count of their whole."""

ATOM_TOKENS_PER_CHAR = 8
"""Texts are counted in atoms, and pieces made of them. A character has at most 4 bytes, and so 4
tokens: an atom of as many characters as an eighth of the budget takes at most half of it."""
ATOM_SHORT_SHARE = 4
"""Atoms shorter than the longest one by this much are counted together: a text of short lines would
take a hundred times as many counts, and they would add up to less than the whole."""
SOONEST_END_SHARE = 0.5
"""A piece ends at its strongest boundary beyond this share of the budget."""
WINDOW_CHARS_MIN = 1 << 16
WINDOW_CHARS_PER_TOKEN = 16
MERGE_SLACK_TOKENS = 8
"""What lies between two summaries that are merged, and what counting them anew may add."""

_BOUNDARIES = re.compile(
    r"(?P<heading>[^\S\n]*\n+(?=[ \t]*\#{1,6}[ \t]))"
    r"|(?P<paragraph>[^\S\n]*\n[ \t\r]*\n\s*)"
    r"|(?P<line>[^\S\n]*\n)"
    r"|(?P<sentence>[.!?…][\"'”’)\]]*\s+|[。！？]+)"  # noqa: RUF001 - in other languages, too
    r"|(?P<word>[^\S\n]+)"
)
_STRENGTHS = {"heading": 5, "paragraph": 4, "line": 3, "sentence": 2, "word": 1}
_MIDDLE_OF_WORD = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """`text[start:end]` of a document, and its tokens."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Atom:
    start: int
    end: int
    strength: int
    """Of the boundary at its end."""


class MergeImpossible(Exception):
    """Not even two summaries fit into one merge."""


def split(text: str, budget_tokens: int, count_tokens: CountTokens) -> Iterator[Piece]:
    """Cuts `text` into pieces of at most `budget_tokens` each; joined, they are `text`.

    Looks at a window of the text at a time, so memory does not grow with it. A single character
    of more tokens than the budget is a piece all the same.
    """
    window_chars = max(WINDOW_CHARS_MIN, WINDOW_CHARS_PER_TOKEN * budget_tokens)
    start = 0
    while start < len(text):
        end = min(len(text), start + window_chars)
        pieces = _split(text, start, end, budget_tokens, count_tokens)
        if end < len(text) and len(pieces) > 1:
            pieces.pop()  # it ends where the window does: what follows belongs to it
        yield from pieces
        start = pieces[-1].end


def _split(text: str, start: int, end: int, budget: int, count: CountTokens) -> list[Piece]:
    chars_max = max(1, budget // ATOM_TOKENS_PER_CHAR)
    atoms = list(_joined(_atoms(text, start, end, chars_max), chars_max // ATOM_SHORT_SHARE))
    tokens = count([text[atom.start : atom.end] for atom in atoms])
    spans = _pack(atoms, tokens, budget)
    counts = count([text[span_start:span_end] for span_start, span_end in spans])
    pieces: list[Piece] = []
    for (span_start, span_end), total in zip(spans, counts, strict=True):
        if total <= budget or span_end - span_start == 1:
            pieces.append(Piece(span_start, span_end, total))
        else:
            # The whole counts more than its atoms did: cut it as if there were less room.
            less = max(1, min(budget - 1, budget * budget // total))
            pieces.extend(_split(text, span_start, span_end, less, count))
    return pieces


def _atoms(text: str, start: int, end: int, chars_max: int) -> list[_Atom]:
    """Short stretches of the text, each up to its best boundary within `chars_max`."""
    atoms: list[_Atom] = []
    open_at, best, strength = start, start, -1

    def close(upto: int, boundary: int) -> None:
        nonlocal open_at, best, strength
        while upto - open_at > chars_max:
            atoms.append(_Atom(open_at, open_at + chars_max, _MIDDLE_OF_WORD))
            open_at += chars_max
        if upto > open_at:
            atoms.append(_Atom(open_at, upto, boundary))
        open_at, best, strength = upto, upto, -1

    for match in _BOUNDARIES.finditer(text, start, end):
        at, found = match.end(), _STRENGTHS[match.lastgroup or "word"]
        if at - open_at > chars_max and best > open_at:
            close(best, strength)
        if at - open_at > chars_max or found > _STRENGTHS["word"]:
            close(at, found)
        else:
            best, strength = at, found
    if end - open_at > chars_max and best > open_at:
        close(best, strength)
    close(end, _STRENGTHS["heading"])
    return atoms


def _joined(atoms: Sequence[_Atom], chars_max: int) -> Iterator[_Atom]:
    """Neighbours that have at most so many characters together as one, up to the strongest end."""
    first = last = 0
    while first < len(atoms):
        start = atoms[first].start
        last = max(last, first)
        while last + 1 < len(atoms) and atoms[last + 1].end - start <= chars_max:
            last += 1
        best = max(range(first, last + 1), key=lambda index: (atoms[index].strength, index))
        yield _Atom(start, atoms[best].end, atoms[best].strength)
        first = best + 1


def _pack(atoms: Sequence[_Atom], tokens: Sequence[int], budget: int) -> list[tuple[int, int]]:
    """Spans of atoms that fit by the sum of their counts, each ending at a strong boundary."""
    spans: list[tuple[int, int]] = []
    first = 0
    while first < len(atoms):
        total, best, is_late = 0, first, False
        for index in range(first, len(atoms)):
            total += tokens[index]
            if total > budget and index > first:
                break
            if not is_late or atoms[index].strength >= atoms[best].strength:
                best = index
            is_late = total >= budget * SOONEST_END_SHARE
        else:
            best = len(atoms) - 1
        spans.append((atoms[first].start, atoms[best].end))
        first = best + 1
    return spans


def plan_tree(pieces: int, summary_tokens_max: int, budget_tokens: int) -> list[list[int]]:
    """How many children each merge has, level by level from the pieces up; the last is the root.

    Raises MergeImpossible when not even two summaries fit into one merge.
    """
    fan_in = budget_tokens // (summary_tokens_max + MERGE_SLACK_TOKENS)
    if pieces > 1 and fan_in < 2:
        raise MergeImpossible(
            f"summaries of {summary_tokens_max} tokens cannot be merged in {budget_tokens}"
        )
    levels: list[list[int]] = []
    nodes = pieces
    while nodes > 1:
        groups = -(-nodes // fan_in)
        small, larger = divmod(nodes, groups)
        levels.append([small + 1] * larger + [small] * (groups - larger))
        nodes = groups
    return levels
