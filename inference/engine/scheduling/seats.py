"""The sequences that hold blocks: who sits where, what fits beside them, and who yields to whom.

Works on blocks and sequences alone; it neither queues nor decides when somebody starts. Owned by
the scheduler.
"""

import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from inference.contracts import BLOCK_TOKENS, Priority
from inference.engine.scheduling.block_pool import BlockPool
from inference.engine.scheduling.policy import choose_victim
from inference.engine.sequence import SequenceState, blocks_for, rank


class Seats:
    """At most `seats_max` running sequences, by class in order of arrival."""

    def __init__(self, pool: BlockPool, seats_max: int) -> None:
        self._pool = pool
        self._seats_max = seats_max
        # By class as a list: hashing an enum's member costs as much as the rest of a look-up.
        self.by_class: list[list[SequenceState]] = [[] for _ in Priority]

    def __len__(self) -> int:
        return sum(map(len, self.by_class))

    def __iter__(self) -> Iterator[SequenceState]:
        """In order of service."""
        for members in self.by_class:
            yield from members

    def take(self, state: SequenceState, matched: list[int]) -> None:
        """Seats a sequence on its prefix hits and fresh blocks for all known tokens."""
        self._pool.share(matched)
        fresh = blocks_for(len(state.token_ids)) - len(matched)
        state.blocks = matched + self._pool.allocate(fresh)
        state.computed = len(matched) * BLOCK_TOKENS
        state.published = len(matched)
        bisect.insort(self.by_class[state.priority], state, key=rank)

    def leave(self, state: SequenceState) -> None:
        """Takes its blocks; what it computed may be found again."""
        self.by_class[state.priority].remove(state)
        self._pool.release(state.blocks)
        state.blocks = []
        state.computed = 0
        state.published = 0
        state.drafts.clear()

    def change_class(self, state: SequenceState, priority: Priority) -> None:
        """A seated sequence is served in another class from now on."""
        self.by_class[state.priority].remove(state)
        state.priority = priority
        bisect.insort(self.by_class[priority], state, key=rank)

    def grow(self, state: SequenceState, tokens: int) -> bool:
        """Blocks for so many tokens of a seated sequence, if they are available."""
        missing = blocks_for(tokens) - len(state.blocks)
        if missing > self._pool.available:
            return False
        if missing > 0:
            state.blocks += self._pool.allocate(missing)
        return True

    def grow_all(self, states: Sequence[SequenceState]) -> bool:
        """A block for the token after the newest of each of these, or nothing for nobody."""
        missing = (blocks_for(len(s.token_ids) + 1) - len(s.blocks) for s in states)
        if sum(count for count in missing if count > 0) > self._pool.available:
            return False
        return all(self.grow(state, len(state.token_ids) + 1) for state in states)

    def victim_for(self, needy: SequenceState) -> SequenceState:
        """Who gives its blocks to a seated sequence that needs one more; maybe that itself.

        Never the first in order of service: it always advances, and fits the pool alone.
        """
        first = next(iter(self))
        return choose_victim(
            (s for s in self if s is not first and s.priority >= needy.priority),
            self._recompute_tokens,
        )

    def settled(self, priority: Priority, waiting: Collection[bytes]) -> bool:
        """Whether all seats are taken, and nobody yields one to the keys of a class that wait."""
        if len(self) < self._seats_max or any(self.by_class[priority + 1 :]):
            return False
        seated = {state.key for state in self.by_class[priority]}
        return all(key in seated for key in waiting)

    def room_for(self, state: SequenceState, matched: Sequence[int]) -> list[SequenceState] | None:
        """Whom to preempt so that a sequence fits; None if that would not help."""
        victims: list[SequenceState] = []
        while not self._fits(state, matched, victims):
            yielding = self._yielding_to(state, victims)
            if not yielding:
                return None
            victims.append(choose_victim(yielding, self._recompute_tokens))
        return victims

    def _yielding_to(
        self, state: SequenceState, victims: Sequence[SequenceState]
    ) -> list[SequenceState]:
        """Batch yields to the other class, and within a class a key that runs several sequences to
        one that runs none: so a flood costs somebody else a step or two, not its whole length."""
        left = [s for s in self if s not in victims]
        yielding = [s for s in left if s.priority > state.priority]
        peers = [s for s in left if s.priority == state.priority]
        seats = Counter(s.key for s in peers)
        if state.key not in seats:
            yielding += [s for s in peers if seats[s.key] > 1 and s is not left[0]]
        return yielding

    def _fits(
        self, state: SequenceState, matched: Sequence[int], victims: Sequence[SequenceState]
    ) -> bool:
        """Whether `state` could start once `victims` are gone, with one block to spare for each
        other running sequence of its class or above: each needs one within sixteen steps, and
        admitting into that room would only bring preemptions."""
        if len(self) - len(victims) >= self._seats_max:
            return False
        taken = Counter(block for victim in victims for block in victim.blocks)
        freed = {block for block, count in taken.items() if count == self._pool.owners(block)}
        hits_idle = sum(1 for b in matched if self._pool.owners(b) == 0 or b in freed)
        room = self._pool.available + len(freed) - hits_idle
        spare = sum(1 for s in self if s.priority <= state.priority and s not in victims)
        return blocks_for(len(state.token_ids)) - len(matched) + spare <= room

    def _recompute_tokens(self, state: SequenceState) -> int:
        """What preempting it costs: all it has computed but what others hold as well. Its own
        blocks would stay findable, but somebody wants them now."""
        shared = 0
        for block in state.blocks:
            if self._pool.owners(block) == 1:
                break
            shared += BLOCK_TOKENS
        return max(0, state.computed - shared)
