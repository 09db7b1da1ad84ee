"""Who has been served how much: virtual token counters per fairness key, and queues by key.

After "Fairness in Serving Large Language Models" (Sheng et al., OSDI 2024): the key that has got
the least for its weight goes first. Pure bookkeeping for one scheduling class; the scheduler alone
calls it. A key is an opaque name, and active while it has a sequence that waits or runs.
"""

import bisect
from collections import OrderedDict
from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass

from inference.engine.sequence import SequenceState, rank

OUTPUT_WEIGHT = 2.0
"""What an output token counts, in computed prompt tokens; cached ones count nothing."""
CREDIT_TOKENS = 1024.0
"""How far a key that comes back (or is new) may run ahead of those that were served meanwhile:
a short request of somebody who asks seldom is done before the flood of somebody else goes on."""
IDLE_KEYS_MAX = 1024
"""Keys without work whose debt is remembered; the longest idle are forgiven first."""


@dataclass(slots=True)
class _Account:
    counter: float
    weight: float
    sequences: int = 0


class FairShares:
    """Weighted tokens served, by key. `clock` is what the least served active key has got, and
    never runs back: newcomers start that far, less their credit."""

    def __init__(self) -> None:
        self._active: dict[bytes, _Account] = {}
        self._idle: OrderedDict[bytes, float] = OrderedDict()
        self._clock = 0.0

    def enter(self, key: bytes, weight: float) -> None:
        """One more sequence of a key waits; the newest weight of a key holds."""
        account = self._active.get(key)
        if account is None:
            self._advance()
            start = self._clock - CREDIT_TOKENS
            account = _Account(max(self._idle.pop(key, start), start), weight)
            self._active[key] = account
        account.weight = weight
        account.sequences += 1

    def leave(self, key: bytes) -> None:
        """A sequence of a key is gone. With nobody left all is forgotten: nobody waits for it."""
        account = self._active[key]
        account.sequences -= 1
        if account.sequences:
            return
        del self._active[key]
        if not self._active:
            self._idle.clear()
            self._clock = 0.0
            return
        self._advance()
        if account.counter > self._clock - CREDIT_TOKENS:
            self._idle[key] = account.counter
            if len(self._idle) > IDLE_KEYS_MAX:
                self._idle.popitem(last=False)

    def charge(self, key: bytes, prompt_tokens: int, output_tokens: int) -> None:
        """So many tokens were computed for an active key."""
        account = self._active[key]
        account.counter += (prompt_tokens + OUTPUT_WEIGHT * output_tokens) / account.weight

    def served(self, key: bytes, more_tokens: int = 0) -> float:
        """What an active key will have got, with so many more tokens of prompts."""
        account = self._active[key]
        return account.counter + more_tokens / account.weight

    def ranked(self, keys: Iterable[bytes]) -> list[bytes]:
        """Active keys, the least served first, equals in the order given."""
        return sorted(keys, key=self.served)

    def weight(self, key: bytes) -> float:
        """The weight of an active key."""
        return self._active[key].weight

    def _advance(self) -> None:
        if self._active:
            least = min(account.counter for account in self._active.values())
            self._clock = max(self._clock, least)


class FairQueue:
    """The waiting sequences of one class: by key, and within a key in order of arrival."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, list[SequenceState]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def keys(self) -> KeysView[bytes]:
        """Whose sequences wait."""
        return self._by_key.keys()

    def held_by(self, key: bytes) -> int:
        """How many sequences of a key wait."""
        return len(self._by_key.get(key, ()))

    def push(self, state: SequenceState) -> None:
        """Puts a sequence in its place of arrival."""
        bisect.insort(self._by_key.setdefault(state.key, []), state, key=rank)
        self._length += 1

    def remove(self, state: SequenceState) -> None:
        """Takes a waiting sequence out."""
        waiting = self._by_key[state.key]
        waiting.remove(state)
        if not waiting:
            del self._by_key[state.key]
        self._length -= 1

    def first(self) -> list[SequenceState]:
        """The first that has arrived, whoever's it is; nothing if nobody waits."""
        return sorted((waiting[0] for waiting in self._by_key.values()), key=rank)[:1]

    def next(
        self, shares: FairShares, pending: Mapping[bytes, int], passed: Iterable[bytes]
    ) -> SequenceState | None:
        """The first of the least served key, counting what is `pending` of its running prompts;
        keys in `passed` are left out."""
        return min(
            (waiting[0] for key, waiting in self._by_key.items() if key not in passed),
            key=lambda state: (shares.served(state.key, pending.get(state.key, 0)), rank(state)),
            default=None,
        )
