"""Drafts without a model: what followed the last time the same tokens came, in prompt or answer.

An index of token pairs per sequence, brought up to date when drafts are wanted, so that sequences
which are not worth guessing for cost nothing. Never looks across sequences: another tenant's text
is not there to be found. Used by `Speculation`. (Saxena: Prompt lookup decoding, 2023.)
"""

from collections.abc import Sequence

from inference.engine.sequence import SequenceState

MATCH_TOKENS_MIN = 2
"""The shortest repeated run worth continuing: on source files and prose, replayed at the step times
of int8 on a CPU, pairs gave 1.27x and 1.09x, runs of three 1.17x and 1.05x, of four 1.11x and
1.02x."""
MATCH_TOKENS_MAX = 8
"""Among earlier places the one that agrees longest backwards is continued; this is long enough."""
PLACES_MAX = 8
"""Earlier places compared per draft, latest first."""
INDEXED_TOKENS_MAX = 1 << 15
"""Of a longer prompt only the end is indexed; a token takes about 150 bytes."""
ID_BITS = 32


class NgramDrafts:
    """A `DraftSource` over the sequences' own tokens."""

    def __init__(self) -> None:
        self._indices: dict[SequenceState, PairIndex] = {}

    def propose(self, wanted: Sequence[tuple[SequenceState, int]]) -> None:
        """Fills `drafts` of each sequence with up to so many tokens, none where nothing repeats."""
        for state, count in wanted:
            index = self._indices.get(state)
            if index is None:
                index = self._indices[state] = PairIndex()
            state.drafts = index.continuation(state.token_ids, count)

    def forget(self, state: SequenceState) -> None:
        """Drops the index of a sequence, if it has one."""
        self._indices.pop(state, None)


class PairIndex:
    """Where each pair of neighbouring tokens stands in one growing sequence of tokens."""

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}
        self._earlier: list[int] = []
        self._first = 0

    def continuation(self, token_ids: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow `token_ids`, which only grow between calls."""
        self._index(token_ids)
        place = self._best_place(token_ids)
        if place is None:
            return []
        period = len(token_ids) - 1 - place
        drafts: list[int] = []
        for ahead in range(count):
            # Where the repetition overlaps its own end it goes on from the drafts.
            drafts.append(
                drafts[ahead - period] if ahead >= period else token_ids[place + 1 + ahead]
            )
        return drafts

    def _index(self, token_ids: Sequence[int]) -> None:
        """Adds all pairs but the last, whose repetition is looked for; places are of the second."""
        if not self._earlier:
            self._first = max(1, len(token_ids) - INDEXED_TOKENS_MAX)
        for place in range(self._first + len(self._earlier), len(token_ids) - 1):
            pair = token_ids[place - 1] << ID_BITS | token_ids[place]
            self._earlier.append(self._latest.get(pair, -1))
            self._latest[pair] = place

    def _best_place(self, token_ids: Sequence[int]) -> int | None:
        """The place of the pair whose past agrees longest with the end of `token_ids`."""
        if len(token_ids) < MATCH_TOKENS_MIN:
            return None
        place = self._latest.get(token_ids[-2] << ID_BITS | token_ids[-1], -1)
        best, best_length = None, MATCH_TOKENS_MIN - 1
        for _ in range(PLACES_MAX):
            if place < 0:
                break
            length = _agreement(token_ids, place)
            if length > best_length:
                best, best_length = place, length
            if length == MATCH_TOKENS_MAX:
                break
            place = self._earlier[place - self._first]
        return best


def _agreement(token_ids: Sequence[int], place: int) -> int:
    """How many tokens up to `place` equal those at the end, at most MATCH_TOKENS_MAX."""
    length = 0
    while (
        length < min(MATCH_TOKENS_MAX, place + 1)
        and token_ids[place - length] == token_ids[-1 - length]
    ):
        length += 1
    return length
