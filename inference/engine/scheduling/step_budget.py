"""How long a step takes, learned from the steps before it, and how much still fits into one.

Pure arithmetic on loads and durations that it is handed: no clock, no knowledge of requests. The
scheduler keeps one `StepCost` and opens a `StepBudget` for each step it plans.
"""

import math
from dataclasses import dataclass

MEMORY = 0.98
"""What a step still weighs one step later: about fifty steps count."""
SWEEPS = 2
"""Passes of coordinate descent per step; what they leave undone the next step goes on with."""
OUTLIER_FACTOR = 2.0
"""A step that takes longer than this many times what was expected (a page fault, a neighbour on the
core) counts as that long."""
OUTLIERS_MAX = 5
"""After so many of them in a row things have changed: what was before is forgotten."""
OVERHEAD_PART_MAX = 0.5
"""However low the target, or the part of it that a class may fill: at most this part of a step is
what even an empty one costs. Else a slow machine would compute one token of batch in each."""


@dataclass(slots=True)
class StepLoad:
    """What a step computes, summed over its sequences: `context_tokens` are those whose KV is read,
    `products` counts each of them once for every token that attends to it."""

    tokens: int = 0
    sequences: int = 0
    context_tokens: int = 0
    products: int = 0


class StepCost:
    """Milliseconds as a non-negative sum of what a step costs anyway and of its load.

    Least squares of the relative error with exponential forgetting, by coordinate descent from the
    last solution: loads that never vary leave alone what they cannot tell apart.
    """

    def __init__(self) -> None:
        self._weights = [0.0] * 5
        self._outliers = OUTLIERS_MAX
        self._forget()

    @property
    def overhead_ms(self) -> float:
        """What a step costs whatever it computes."""
        return self._weights[1]

    def token_ms(self, start: int) -> float:
        """What one more token of a sequence costs, after `start` others."""
        return self._weights[0] + self._weights[4] * start

    def sequence_ms(self, start: int) -> float:
        """What a sequence costs beside its tokens."""
        return self._weights[2] + self._weights[3] * start

    def decodes_ms(self, sequences: int, context_tokens: int) -> float:
        """What so many sequences cost that compute a token each, after so many others in sum."""
        tokens, _, sequence, context, product = self._weights
        return sequences * (tokens + sequence) + context_tokens * (context + product)

    def expected_ms(self, load: StepLoad) -> float:
        """How long a step of this load takes; 0 before any was seen."""
        return sum(map(math.prod, zip(self._weights, _features(load), strict=True)))

    def observe(self, load: StepLoad, duration_ms: float) -> None:
        """Learns from a step that has ended; one that took no time teaches nothing."""
        if duration_ms <= 0.0 or not load.tokens:
            return
        most_ms = OUTLIER_FACTOR * self.expected_ms(load)
        self._outliers = self._outliers + 1 if duration_ms > most_ms else 0
        if self._outliers <= OUTLIERS_MAX:
            duration_ms = min(duration_ms, most_ms)
        elif self._outliers == OUTLIERS_MAX + 1:
            self._forget()
        row = [feature / duration_ms for feature in _features(load)]
        for index, value in enumerate(row):
            self._moment[index] = MEMORY * self._moment[index] + value
            self._gram[index] = [
                MEMORY * old + value * other
                for old, other in zip(self._gram[index], row, strict=True)
            ]
        for _ in range(SWEEPS):
            self._sweep()

    def _forget(self) -> None:
        """The weights stay until they are learned anew."""
        self._gram = [[0.0] * 5 for _ in range(5)]
        self._moment = [0.0] * 5

    def _sweep(self) -> None:
        weights = self._weights
        for index, products in enumerate(self._gram):
            if products[index] > 0.0:
                explained = sum(map(math.prod, zip(products, weights, strict=True)))
                step = (self._moment[index] - explained) / products[index]
                weights[index] = max(0.0, weights[index] + step)


class StepBudget:
    """What is left of one step: tokens, and once it is `bound`, time up to `target_ms` (which is
    more than asked for where overhead alone would take it; None means no end)."""

    def __init__(self, cost: StepCost, tokens: int, target_ms: float | None) -> None:
        self.load = StepLoad()
        self.cost = cost
        self.tokens_left = tokens
        self._least_ms = cost.overhead_ms / OVERHEAD_PART_MAX
        self.target_ms = math.inf if target_ms is None else max(target_ms, self._least_ms)
        self._limit_ms = math.inf
        self._spent_ms = cost.overhead_ms

    def bound(self, part: float = 1.0, sure_part: float = 0.0) -> None:
        """From now on nothing fits that would end the step after this part of its target, which is
        more where overhead alone would take it, or where `sure_part` of the target more than is
        spent still ends within it."""
        sure_ms = min(self._spent_ms + sure_part * self.target_ms, self.target_ms)
        self._limit_ms = min(self._limit_ms, max(part * self.target_ms, self._least_ms, sure_ms))

    @property
    def bound_ms(self) -> float:
        """How long the step may take for who is dealt tokens next; its target at most."""
        return min(self.target_ms, self._limit_ms)

    def room(self, wanted: int, start: int) -> int:
        """How many of `wanted` tokens of one more sequence, after its first `start`, still fit."""
        wanted = min(wanted, self.tokens_left)
        left_ms = self._limit_ms - self._spent_ms - self.cost.sequence_ms(start)
        token_ms = self.cost.token_ms(start)
        if left_ms >= wanted * token_ms:
            return wanted
        return max(0, int(left_ms / token_ms))

    def sequences_in(self, part: float, start: int) -> int:
        """How many sequences could compute one token each in this part of the whole step."""
        tokens = part * self.tokens_left
        decode_ms = self.cost.decodes_ms(1, start)
        if self._limit_ms == math.inf or decode_ms == 0.0:
            return int(tokens)
        return int(min(tokens, part * (self._limit_ms - self.cost.overhead_ms) / decode_ms))

    def take(self, tokens: int, start: int, *, begun: bool = False) -> None:
        """Spends so many tokens on one more sequence, or more on one that was `begun`."""
        self.tokens_left -= tokens
        self._spent_ms += tokens * self.cost.token_ms(start)
        self.load.tokens += tokens
        self.load.products += tokens * start
        if not begun:
            self._spent_ms += self.cost.sequence_ms(start)
            self.load.sequences += 1
            self.load.context_tokens += start

    def take_decodes(self, sequences: int, context_tokens: int) -> None:
        """Spends a token each on so many sequences, after so many others in sum."""
        self.tokens_left -= sequences
        self._spent_ms += self.cost.decodes_ms(sequences, context_tokens)
        self.load.tokens += sequences
        self.load.sequences += sequences
        self.load.context_tokens += context_tokens
        self.load.products += context_tokens


def _features(load: StepLoad) -> tuple[float, ...]:
    """Tokens first: what may be theirs is not taken for overhead."""
    return (load.tokens, 1.0, load.sequences, load.context_tokens, load.products)
