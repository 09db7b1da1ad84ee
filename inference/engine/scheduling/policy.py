"""Who gets how much of a step, and who gives way: decisions without state of their own.

Kept beside the scheduler so that fairness can be read and tested alone; called by the scheduler
only, and never aware of blocks.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from inference.engine.scheduling.step_budget import StepBudget
from inference.engine.sequence import SequenceState

SURE_PART = 1 / 16
"""This part of a step, evenly among the keys that decode, cannot be taken by prompts of others."""
PREFILL_TOKENS_MIN = 16
"""What the first prompt in turn gets even of a step that decoding fills up to its time."""


def deal(
    members: Sequence[SequenceState],
    ranked: Callable[[Iterable[bytes]], Sequence[bytes]],
    budget: StepBudget,
    *,
    streams: bool,
    leads: bool,
) -> list[int]:
    """Tokens of a step for each of `members` (of one class, in order of arrival).

    `ranked` puts keys in order, the least served first. With `streams` all that decode get a token,
    whatever the time: only the prompt of a less served key may take the place of some, in turn.
    Without, everybody gets what fits. With `leads` the first member gets a token in any case.
    Guesses are checked with what remains.
    """
    hand = _Hand(members, budget)
    if streams and hand.decodes_are_cheap():
        hand.give_all_decodes()
    if leads and not hand.given[0]:
        hand.give(0, 1)
    if hand.prefills or not streams:
        hand.give_by_key(ranked, streams=streams)
    hand.give_drafts()
    return hand.given


class _Hand:
    """What has been dealt so far."""

    def __init__(self, members: Sequence[SequenceState], budget: StepBudget) -> None:
        self.given = [0] * len(members)
        self._members = members
        self._budget = budget
        self._decodes = [i for i, s in enumerate(members) if len(s.token_ids) - s.computed == 1]
        self.prefills: list[int] = []
        if len(self._decodes) < len(members):
            self.prefills = [i for i, s in enumerate(members) if s.uncomputed > 1]

    def decodes_are_cheap(self) -> bool:
        """Whether no prompt can want the place of those that decode: there is none, or they take
        less of the step than is theirs in any case."""
        if not self.prefills or not self._decodes:
            return True
        longest = max(self._members[index].computed for index in self._decodes)
        return len(self._decodes) <= self._budget.sequences_in(SURE_PART, longest)

    def give_all_decodes(self) -> None:
        """A token each."""
        for index in self._decodes:
            self.given[index] = 1
        context_tokens = sum(self._members[index].computed for index in self._decodes)
        self._budget.take_decodes(len(self._decodes), context_tokens)

    def give_by_key(
        self, ranked: Callable[[Iterable[bytes]], Sequence[bytes]], *, streams: bool
    ) -> None:
        """The least served key first, its decoding sequences before its prompts."""
        decodes = self._by_key(index for index in self._decodes if not self.given[index])
        prefills = self._by_key(self.prefills)
        if streams:
            for indices in decodes.values():
                self._give_sure(indices, SURE_PART / len(decodes))
        reading = False
        keys = ranked(dict.fromkeys([*prefills, *decodes]))
        for key in keys:
            self._give_decodes(decodes.get(key, ()), always=streams and not reading)
            if key in prefills:
                reading = self._give_prefills(prefills[key]) or reading
        if streams and not reading:
            self._give_a_little(prefills[next(key for key in keys if key in prefills)][0])

    def give_drafts(self) -> None:
        """As many guesses as still fit, of those that decode."""
        for index in self._decodes:
            state = self._members[index]
            if state.drafts and self.given[index]:
                tokens = self._budget.room(len(state.drafts), state.computed)
                if tokens:
                    self.give(index, tokens)

    def give(self, index: int, tokens: int) -> None:
        self._budget.take(tokens, self._members[index].computed, begun=self.given[index] > 0)
        self.given[index] += tokens

    def _by_key(self, indices: Iterable[int]) -> dict[bytes, list[int]]:
        groups: dict[bytes, list[int]] = {}
        for index in indices:
            groups.setdefault(self._members[index].key, []).append(index)
        return groups

    def _give_sure(self, indices: list[int], part: float) -> None:
        """Those of a key that waited longest for a token, as many as are sure of one."""
        sure = max(1, self._budget.sequences_in(part, self._members[indices[0]].computed))
        if sure < len(indices):
            indices.sort(key=lambda index: self._members[index].last_token_at_s or 0.0)
        for index in indices[:sure]:
            if not self.given[index]:
                self.give(index, 1)

    def _give_decodes(self, indices: Iterable[int], *, always: bool) -> None:
        for index in indices:
            wanted = min(1 - self.given[index], self._budget.tokens_left)
            if wanted and (always or self._budget.room(1, self._members[index].computed)):
                self.give(index, 1)

    def _give_prefills(self, indices: Sequence[int]) -> bool:
        """Whether the prompts of a key got what the first in turn gets in any case."""
        wants = [self._members[index].uncomputed - self.given[index] for index in indices]
        room = self._budget.room(sum(wants), self._members[indices[0]].computed)
        for index, tokens in zip(indices, split_budget(room, wants), strict=True):
            if tokens:
                self.give(index, tokens)
        return room >= min(PREFILL_TOKENS_MIN, sum(wants))

    def _give_a_little(self, index: int) -> None:
        wanted = min(PREFILL_TOKENS_MIN, self._members[index].uncomputed) - self.given[index]
        tokens = min(wanted, self._budget.tokens_left)
        if tokens > 0:
            self.give(index, tokens)


def split_budget(budget: int, wants: Sequence[int]) -> list[int]:
    """Shares of `budget` tokens for the prompts of one key that want so many, oldest first.

    The oldest gets half, so that prompts finish in order of arrival; the other half is shared
    evenly, so that a short prompt never waits for a long one. What nobody else wants goes to the
    oldest in order.
    """
    shares = [0] * len(wants)
    if not wants or not budget:
        return shares
    shares[0] = min(wants[0], math.ceil(budget / 2))
    budget -= shares[0]
    smallest_first = sorted(range(1, len(wants)), key=wants.__getitem__)
    for served, index in enumerate(smallest_first):
        shares[index] = min(wants[index], budget // (len(smallest_first) - served))
        budget -= shares[index]
    for index, want in enumerate(wants):
        more = min(want - shares[index], budget)
        shares[index] += more
        budget -= more
    return shares


def choose_victim(
    candidates: Iterable[SequenceState], recompute_tokens: Callable[[SequenceState], int]
) -> SequenceState:
    """Whom to preempt: the lowest class, there the least to recompute, there the youngest."""
    return min(
        candidates,
        key=lambda state: (
            -state.priority,
            recompute_tokens(state),
            -state.arrival,
            -state.choice,
        ),
    )
