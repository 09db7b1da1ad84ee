"""Sources of drafts for tests, and step costs under which guessing always pays."""

from collections.abc import Callable, Collection, Sequence

from inference.engine.drafting.draft_length import RowCosts
from inference.engine.drafting.speculation import DraftSource, Speculation
from inference.engine.sequence import SequenceState

FLAT = RowCosts((1, 4096), (1.0, 1.0001))
"""Rows for nothing: as many drafts as may be, whatever became of the last ones."""


class Guesses:
    """A source that guesses what `guess(state, count)` says, cut to what was wanted."""

    def __init__(self, guess: Callable[[SequenceState, int], Sequence[int]]) -> None:
        self.guess = guess
        self.forgotten: list[SequenceState] = []

    def propose(self, wanted: Sequence[tuple[SequenceState, int]]) -> None:
        for state, count in wanted:
            assert state.drafts == []
            assert state.uncomputed == 1
            state.drafts = list(self.guess(state, count))[:count]

    def forget(self, state: SequenceState) -> None:
        self.forgotten.append(state)


class Eager(Speculation):
    """Guesses as far as may be in every step: it never learns that it was wrong."""

    def __init__(self, source: DraftSource, end_ids: Collection[int] = ()) -> None:
        super().__init__(source, end_ids=end_ids, checking=FLAT)

    def checked(self, state: SequenceState, drafted: int, accepted: int) -> None:
        assert 0 <= accepted <= drafted
