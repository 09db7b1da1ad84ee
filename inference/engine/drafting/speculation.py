"""Speculative decoding as the engine sees it: which sequences to guess for, how far, from where.

A guess costs time and never changes an answer: the engine draws at every drafted position with the
noise that position always has. `Speculation` decides lengths and keeps drafts within what may
follow; sources make them. Called once per step for all sequences that are decoding.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from inference.engine.drafting.draft_length import (
    FREE,
    TRIAL_DRAFTS,
    TRIAL_RATE,
    Acceptance,
    RowCosts,
    draft_lengths,
)
from inference.engine.sequence import SequenceState


class Drafter(Protocol):
    """Guesses for decoding sequences, and learns from how many were right."""

    def draft(self, states: Sequence[SequenceState]) -> None:
        """Sets `drafts` of each, to nothing where guessing is not worth it; none reaches past the
        end of the answer's `max_tokens`."""
        ...

    def checked(self, state: SequenceState, drafted: int, accepted: int) -> None:
        """So many of its drafts were checked, and so many right."""
        ...

    def forget(self, state: SequenceState) -> None:
        """The sequence has ended."""
        ...


class DraftSource(Protocol):
    """Where guesses come from."""

    def propose(self, wanted: Sequence[tuple[SequenceState, int]]) -> None:
        """Fills the empty `drafts` of each sequence with up to so many guesses (at least one is
        wanted)."""
        ...

    def forget(self, state: SequenceState) -> None:
        """The sequence has ended; it may never have been asked for."""
        ...


class Speculation:
    """A `Drafter` that guesses where it pays. `checking` and `drafting` are what steps of the model
    and of the source take; `end_ids` are the model's end-of-sequence tokens."""

    def __init__(
        self,
        source: DraftSource,
        *,
        end_ids: Collection[int],
        checking: RowCosts,
        drafting: RowCosts = FREE,
    ) -> None:
        self._source = source
        self._end_ids = frozenset(end_ids)
        self._checking = checking
        self._drafting = drafting
        self._acceptances: dict[SequenceState, Acceptance] = {}

    def draft(self, states: Sequence[SequenceState]) -> None:
        """Sets the drafts of all sequences that decode in the next step."""
        for state in states:
            state.drafts = []
            self._acceptances.setdefault(state, Acceptance()).pass_step(state.token_ids)
        rates = [self._acceptances[state].rate for state in states]
        room = [room_for_drafts(state) for state in states]
        lengths = draft_lengths(rates, room, self._checking, self._drafting)
        wanted = [(s, count) for s, count in zip(states, lengths, strict=True) if count]
        idle = [
            s for s, count, most in zip(states, lengths, room, strict=True) if most > count == 0
        ]
        tried = self._worth_a_trial(idle, len(states))
        if not (wanted or tried):
            return
        self._source.propose([*wanted, *((state, TRIAL_DRAFTS) for state in tried)])
        for state in tried:
            acceptance = self._acceptances[state]
            acceptance.trial, acceptance.trial_start = state.drafts, len(state.token_ids)
            state.drafts = []
        for state, _ in wanted:
            del state.drafts[possible(state, self._end_ids) :]

    def checked(self, state: SequenceState, drafted: int, accepted: int) -> None:
        """Learns from one check."""
        self._acceptances[state].note(drafted, accepted)

    def forget(self, state: SequenceState) -> None:
        """Drops what is kept of a sequence."""
        self._acceptances.pop(state, None)
        self._source.forget(state)

    def _worth_a_trial(self, idle: Sequence[SequenceState], running: int) -> list[SequenceState]:
        stale = [state for state in idle if self._acceptances[state].wants_trial]
        if not stale:
            return []
        hopes = draft_lengths(
            [TRIAL_RATE] * running, [TRIAL_DRAFTS] * running, self._checking, self._drafting
        )
        return stale if any(hopes) else []


def room_for_drafts(state: SequenceState) -> int:
    """How many drafts could still be of use: each step draws one token more than it checks.

    A grammar and a ban on ending can together leave nothing to draw after a wrong guess, which
    would fail a step that is fine without it: no guesses there.
    """
    sampling = state.request.sampling
    assert sampling is not None
    if state.matcher is not None and state.completion < sampling.min_tokens:
        return 0
    return sampling.max_tokens - state.completion - 1


def possible(state: SequenceState, end_ids: Collection[int]) -> int:
    """How many of its drafts can come true: up to what ends the answer, which is drawn without
    being guessed, and as far as its grammar goes."""
    sampling = state.request.sampling
    assert sampling is not None
    ending = set(sampling.stop_token_ids)
    if not sampling.ignore_eos:
        ending.update(end_ids)
    count = next((i for i, draft in enumerate(state.drafts) if draft in ending), len(state.drafts))
    return count if state.matcher is None else state.matcher.allowed_prefix(state.drafts[:count])
