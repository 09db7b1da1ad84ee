"""Plans each step: which requests run, how many tokens each computes, and in which blocks.

There is no prefill or decode phase: a running request has tokens known and tokens computed, and a
plan hands out one token budget. Pure bookkeeping without torch, clock or I/O; called by the engine
between runner calls. Progress is guaranteed: the first running request in order of service is never
preempted, gets tokens in every step, and fits the pool alone (checked at admission).
"""

import bisect
from collections import Counter
from dataclasses import dataclass

from inference.contracts import BLOCK_TOKENS, Priority
from inference.engine.block_pool import BlockPool
from inference.engine.policy import choose_victim, rank, split_budget
from inference.engine.sequence import SequenceState, blocks_for


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`step_tokens_max` tokens computed per step; `running_max` requests with blocks;
    `waiting_max` requests queued per class; after `batch_wait_steps_max` steps in which no batch
    request got a token, the oldest of them is served as interactive until it ends."""

    step_tokens_max: int = 256
    running_max: int = 64
    waiting_max: int = 256
    batch_wait_steps_max: int = 64

    def __post_init__(self) -> None:
        """Raises ValueError for limits under which decoding could starve."""
        if min(self.running_max, self.waiting_max, self.batch_wait_steps_max) < 1:
            raise ValueError("scheduler limits must be at least 1")
        if self.step_tokens_max < self.running_max:
            raise ValueError("step_tokens_max must be at least running_max")


@dataclass(frozen=True, slots=True)
class Share:
    """`tokens` more tokens of one sequence are computed in this step, the last `drafts` of them
    guesses. With `reaches_end` all that is known is computed, so that what follows is drawn."""

    state: SequenceState
    tokens: int
    drafts: int
    reaches_end: bool

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn after it; an embedding has none."""
        return self.reaches_end and self.state.answer is not None


class Scheduler:
    """Queues, running set and block tables of one engine."""

    def __init__(self, pool: BlockPool, limits: SchedulerLimits) -> None:
        self.pool = pool
        self.limits = limits
        self.preemptions = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self._waiting: dict[Priority, list[SequenceState]] = {priority: [] for priority in Priority}
        self._running: list[SequenceState] = []
        self._aged: SequenceState | None = None
        self._batch_idle_steps = 0

    @property
    def running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests queued, preempted ones included."""
        return sum(map(len, self._waiting.values()))

    def queue_is_full(self, priority: Priority) -> bool:
        """Whether a new request of this class must be refused; batch cannot fill the other."""
        return len(self._waiting[priority]) >= self.limits.waiting_max

    def enqueue(self, state: SequenceState) -> None:
        """Puts a request into the queue of its class, in order of arrival."""
        bisect.insort(self._waiting[state.priority], state, key=rank)

    def remove(self, state: SequenceState) -> None:
        """Forgets a request that ended, wherever it was, and gives its blocks back."""
        if state in self._running:
            self._running.remove(state)
            self.pool.release(state.blocks)
            state.blocks = []
        else:
            self._waiting[state.priority].remove(state)
        if state is self._aged:
            self._aged = None

    def decoding(self) -> list[SequenceState]:
        """Running sequences whose next token is drawn by the next step."""
        return [s for s in self._running if s.uncomputed == 1 and s.answer is not None]

    def plan(self, now_s: float) -> list[Share]:
        """The next step: non-empty whenever any request waits or runs."""
        preemptions_before = self.preemptions
        self._age_batch()
        shares: list[Share] = []
        budget = self.limits.step_tokens_max
        for priority in Priority:
            if budget == 0:
                break
            self._grow(priority)
            if self.preemptions == preemptions_before:
                self._admit(priority)
            members = sorted((s for s in self._running if s.priority == priority), key=rank)
            tokens = split_budget(budget, [s.uncomputed + len(s.drafts) for s in members])
            shares += [_share(s, n) for s, n in zip(members, tokens, strict=True) if n]
            budget -= sum(tokens)
        self._note_batch_progress(shares)
        assert shares or not (self._running or self.waiting), "work is queued, but none was planned"
        return shares

    def commit(self, state: SequenceState, computed: int) -> None:
        """Records that the first `computed` tokens have KV; full blocks become findable."""
        assert state.computed < computed <= len(state.token_ids)
        state.computed = computed
        full_blocks = computed // BLOCK_TOKENS
        if full_blocks > state.published:
            state.extend_digests()
            for index in range(state.published, full_blocks):
                self.pool.publish(state.blocks[index], state.digests[index])
            state.published = full_blocks

    def _grow(self, priority: Priority) -> None:
        """Gives each running request of a class the block its newest token needs."""
        for state in sorted((s for s in self._running if s.priority == priority), key=rank):
            missing = blocks_for(len(state.token_ids)) - len(state.blocks)
            if missing > 0 and state in self._running and self._free(missing, state):
                state.blocks += self.pool.allocate(missing)
        for state in self._running:
            if state.drafts and state.priority == priority:
                self._grow_for_drafts(state)

    def _grow_for_drafts(self, state: SequenceState) -> None:
        """Guesses are worth a free block, but nobody's place: without one they are dropped."""
        missing = blocks_for(len(state.token_ids) + len(state.drafts)) - len(state.blocks)
        if missing > self.pool.available:
            state.drafts.clear()
        elif missing > 0:
            state.blocks += self.pool.allocate(missing)

    def _free(self, count: int, needy: SequenceState) -> bool:
        """Preempts until `count` blocks are available; False if `needy` itself had to give way.

        Preempting one whose blocks are all shared frees nothing, so this may take several.
        """
        head = min(self._running, key=rank)
        while self.pool.available < count:
            victim = choose_victim(
                s for s in self._running if s is not head and s.priority >= needy.priority
            )
            self._preempt(victim)
            if victim is needy:
                return False
        return True

    def _admit(self, priority: Priority) -> None:
        """Starts waiting requests of a class in order while they fit.

        Batch does not slip past an interactive request that waits for room: it yields to it.
        """
        queue = self._waiting[priority]
        if priority is Priority.BATCH and self._waiting[Priority.INTERACTIVE]:
            return
        while queue:
            state = queue[0]
            matched = self.pool.match(state.findable_digests)
            if not self._make_room(state, matched):
                return
            self._start(queue.pop(0), matched)

    def _make_room(self, state: SequenceState, matched: list[int]) -> bool:
        """Whether the request fits now, after preempting batch requests if that helps it."""
        victims: list[SequenceState] = []
        yielding = (
            [s for s in self._running if s.priority is Priority.BATCH]
            if state.priority is Priority.INTERACTIVE
            else []
        )
        while not self._fits(state, matched, victims):
            if not yielding:
                return False
            victims.append(choose_victim(yielding))
            yielding.remove(victims[-1])
        for victim in victims:
            self._preempt(victim)
        return True

    def _fits(self, state: SequenceState, matched: list[int], victims: list[SequenceState]) -> bool:
        """Whether `state` could start once `victims` are gone, with one block to spare for each
        other running request of its class or above: each needs one within sixteen steps, and
        admitting into that room would only bring preemptions."""
        if self.running - len(victims) >= self.limits.running_max:
            return False
        taken = Counter(block for victim in victims for block in victim.blocks)
        freed = {block for block, count in taken.items() if count == self.pool.owners(block)}
        hits_idle = sum(1 for b in matched if self.pool.owners(b) == 0 or b in freed)
        room = self.pool.available + len(freed) - hits_idle
        spare = sum(1 for s in self._running if s.priority <= state.priority and s not in victims)
        return blocks_for(len(state.token_ids)) - len(matched) + spare <= room

    def _start(self, state: SequenceState, matched: list[int]) -> None:
        """Moves a request to running, on its prefix hits and fresh blocks for all known tokens."""
        self.pool.share(matched)
        fresh = blocks_for(len(state.token_ids)) - len(matched)
        state.blocks = matched + self.pool.allocate(fresh)
        state.computed = len(matched) * BLOCK_TOKENS
        state.published = len(matched)
        if state.cached is None:
            state.cached = state.computed
            if state.leads:
                self.prompt_tokens += len(state.prompt_ids)
                self.prompt_tokens_cached += state.cached
        self._running.append(state)

    def _preempt(self, victim: SequenceState) -> None:
        """Takes a request's blocks; it waits in its place of arrival and starts over from hits."""
        self._running.remove(victim)
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.published = 0
        victim.drafts.clear()
        victim.extend_digests()
        self.preemptions += 1
        self.enqueue(victim)

    def _age_batch(self) -> None:
        """Serves the oldest batch request as interactive when its class waited too long.

        One at a time, so that aging bounds the wait of batch without taking over the engine.
        """
        if self._aged or self._batch_idle_steps < self.limits.batch_wait_steps_max:
            return
        queue = self._waiting[Priority.BATCH]
        running = [s for s in self._running if s.priority is Priority.BATCH]
        oldest = min(running + queue[:1], key=rank, default=None)
        self._batch_idle_steps = 0
        if oldest is None:
            return
        self._aged = oldest
        if oldest in running:
            oldest.priority = Priority.INTERACTIVE
        else:
            queue.remove(oldest)
            oldest.priority = Priority.INTERACTIVE
            self.enqueue(oldest)

    def _note_batch_progress(self, shares: list[Share]) -> None:
        served = any(share.state.request.priority is Priority.BATCH for share in shares)
        has_batch = bool(self._waiting[Priority.BATCH]) or any(
            s.priority is Priority.BATCH for s in self._running
        )
        self._batch_idle_steps = self._batch_idle_steps + 1 if has_batch and not served else 0


def _share(state: SequenceState, tokens: int) -> Share:
    drafts = max(0, tokens - state.uncomputed)
    del state.drafts[drafts:]
    return Share(state, tokens, drafts, tokens - drafts == state.uncomputed)
