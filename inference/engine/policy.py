"""Who gets how much of a step, and who gives way: decisions without state of their own.

Kept beside the scheduler so that fairness can be read and tested alone; called by the scheduler
only, and never aware of blocks.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from inference.engine.sequence import SequenceState
from inference.engine.step_budget import StepBudget

SURE_PART = 1 / 8
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
    if streams and all(len(s.token_ids) - s.computed == 1 and not s.drafts for s in members):
        budget.take_decodes(len(members), sum(state.computed for state in members))
        return [1] * len(members)
    hand = _Hand(members, budget)
    if leads:
        hand.give(0, 1)
    if streams:
        hand.give_sure()
    reading = False
    keys = ranked(dict.fromkeys(state.key for state in members))
    for key in keys:
        hand.give_decodes(key, always=streams and not reading)
        reading = hand.give_prefills(key) or reading
    if streams and not reading:
        hand.give_first_prefill(keys)
    hand.give_drafts()
    return hand.given


class _Hand:
    """What has been dealt so far."""

    def __init__(self, members: Sequence[SequenceState], budget: StepBudget) -> None:
        self.given = [0] * len(members)
        self._members = members
        self._budget = budget
        self._decodes: dict[bytes, list[int]] = {}
        self._prefills: dict[bytes, list[int]] = {}
        for index, state in enumerate(members):
            group = self._decodes if state.uncomputed == 1 else self._prefills
            group.setdefault(state.key, []).append(index)

    def give(self, index: int, tokens: int) -> None:
        self._budget.take(tokens, self._members[index].computed, begun=self.given[index] > 0)
        self.given[index] += tokens

    def give_sure(self) -> None:
        """Those of each key that waited longest for a token, as many as are sure of one."""
        if not self._prefills:
            return
        part = SURE_PART / max(1, len(self._decodes))
        for indices in self._decodes.values():
            sure = max(1, self._budget.sequences_in(part, self._members[indices[0]].computed))
            if sure < len(indices):
                indices.sort(key=lambda index: self._members[index].last_token_at_s or 0.0)
            for index in indices[:sure]:
                if not self.given[index]:
                    self.give(index, 1)

    def give_decodes(self, key: bytes, *, always: bool) -> None:
        for index in self._decodes.get(key, ()):
            wanted = min(1 - self.given[index], self._budget.tokens_left)
            if wanted and (always or self._budget.room(1, self._members[index].computed)):
                self.give(index, 1)

    def give_prefills(self, key: bytes) -> bool:
        """Whether the prompts of a key got anything."""
        indices = self._prefills.get(key)
        if not indices:
            return False
        wants = [self._members[index].uncomputed - self.given[index] for index in indices]
        room = self._budget.room(sum(wants), self._members[indices[0]].computed)
        for index, tokens in zip(indices, split_budget(room, wants), strict=True):
            if tokens:
                self.give(index, tokens)
        return room > 0

    def give_first_prefill(self, keys: Iterable[bytes]) -> None:
        first = next((self._prefills[key][0] for key in keys if key in self._prefills), None)
        if first is not None:
            wanted = self._members[first].uncomputed - self.given[first]
            tokens = min(PREFILL_TOKENS_MIN, wanted, self._budget.tokens_left)
            if tokens:
                self.give(first, tokens)

    def give_drafts(self) -> None:
        for indices in self._decodes.values():
            for index in indices:
                state = self._members[index]
                if state.drafts and self.given[index]:
                    tokens = self._budget.room(len(state.drafts), state.computed)
                    if tokens:
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
