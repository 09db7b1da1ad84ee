"""How many waiting sequences may start in a step: as many as it has use for.

What starts too early holds blocks while it waits for tokens, misses prefixes that others are about
to compute, and makes every later step longer. Pure; one `Entry` is opened per class and step by the
scheduler, which then asks whether there are seats and blocks.
"""

from collections import Counter
from collections.abc import Sequence

from inference.contracts import Priority
from inference.engine.scheduling.step_budget import StepBudget
from inference.engine.sequence import SequenceState

PREFILLS_MAX = 4
"""Prompts of one key that are read at once, even when the step has no tokens to spare: a short one
does not wait for the long ones before it."""
DECODE_PART_MAX = 0.75
"""No further sequence of a key starts once decoding all that run takes this part of a step."""


class Entry:
    """Tallies of one class: what runs, what of it is still to be read, and what it will cost."""

    def __init__(
        self,
        priority: Priority,
        running: Sequence[Sequence[SequenceState]],
        budget: StepBudget,
    ) -> None:
        self.pending: Counter[bytes] = Counter()
        """Tokens of running prompts not yet computed, by key."""
        self._prefills: Counter[bytes] = Counter()
        self._keys: set[bytes] = set()
        self._presses = priority is Priority.INTERACTIVE
        self._nobody_runs = not any(running)
        self._cost = budget.cost
        self._tokens_left = budget.room(budget.tokens_left, 0)
        self._decode_ms_left = DECODE_PART_MAX * (budget.bound_ms - budget.cost.overhead_ms)
        for members in running[: priority + 1]:
            context = sum(len(state.token_ids) for state in members)
            self._decode_ms_left -= self._cost.decodes_ms(len(members), context)
        members = running[priority]
        self._keys.update(state.request.fairness_key for state in members)
        prefills = [state for state in members if len(state.token_ids) - state.computed > 1]
        self._tokens_left -= len(members) - len(prefills)
        for state in prefills:
            self._add_prefill(state)

    def admits(self, state: SequenceState) -> bool:
        """Whether to start it now, if there is a seat for it.

        Interactive prompts press in, batch waits for tokens that nobody else wants. The first of a
        key starts however long the steps are by then, and where nobody runs the first of all.
        """
        if self._nobody_runs:
            return True
        if self._decode_ms(state) > self._decode_ms_left and state.key in self._keys:
            return False
        presses = self._presses and self._prefills[state.key] < PREFILLS_MAX
        return presses or self._tokens_left > 0

    def add(self, state: SequenceState) -> None:
        """It runs from now on."""
        self._nobody_runs = False
        self._keys.add(state.key)
        self._decode_ms_left -= self._decode_ms(state)
        self._add_prefill(state)

    def _add_prefill(self, state: SequenceState) -> None:
        self._tokens_left -= state.uncomputed
        self.pending[state.key] += state.uncomputed
        self._prefills[state.key] += 1

    def _decode_ms(self, state: SequenceState) -> float:
        return self._cost.decodes_ms(1, len(state.token_ids))
