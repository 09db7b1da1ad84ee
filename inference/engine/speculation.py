"""Where drafted tokens come from, as the engine sees it: guesses at what follows a sequence.

A wrong guess costs time and never changes an answer. Pure interface; the sources beside it
implement it, and the engine asks once per step for all sequences that are decoding.
"""

from collections.abc import Sequence
from typing import Protocol

from inference.engine.sequence import SequenceState


class Drafter(Protocol):
    """Guesses for decoding sequences, and learns from how many were right."""

    def draft(self, states: Sequence[SequenceState]) -> None:
        """Fills `drafts` of those for which guessing is worth it; none reaches past the end of
        the answer's `max_tokens`."""
        ...

    def checked(self, state: SequenceState, drafted: int, accepted: int) -> None:
        """So many of its drafts were checked, and so many right."""
        ...

    def forget(self, state: SequenceState) -> None:
        """The sequence has ended."""
        ...
