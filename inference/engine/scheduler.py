"""Plans each step: which requests run, how many tokens each computes, and in which blocks.

There is no prefill or decode phase: a running request has tokens known and tokens computed, and a
plan hands out one token budget. Pure bookkeeping without torch, clock or I/O; called by the engine
between runner calls. Progress is guaranteed: the first running request in order of service is never
preempted, gets tokens in every step, and fits the pool alone (checked at admission).
"""

import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from inference.contracts import BLOCK_TOKENS, Priority
from inference.engine.block_pool import BlockPool
from inference.engine.entry import Entry
from inference.engine.fairness import FairQueue, FairShares
from inference.engine.policy import choose_victim, deal
from inference.engine.sequence import SequenceState, blocks_for, rank
from inference.engine.step_budget import StepBudget, StepCost, StepLoad


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`step_tokens_max` tokens computed per step; `running_max` sequences with blocks;
    `waiting_max` sequences queued per class, of which one key holds at most as many as are left
    free; `inter_token_target_ms` is how long a step may take while somebody waits for the next
    token of an answer, or while batch has a part in it (None: as long as its tokens take); after
    `batch_wait_steps_max` steps in which no batch sequence got a token, the oldest of them is
    served as interactive until it ends."""

    step_tokens_max: int = 256
    running_max: int = 64
    waiting_max: int = 512
    batch_wait_steps_max: int = 64
    inter_token_target_ms: float | None = 200.0

    def __post_init__(self) -> None:
        """Raises ValueError for limits under which decoding could starve."""
        if min(self.running_max, self.waiting_max, self.batch_wait_steps_max) < 1:
            raise ValueError("scheduler limits must be at least 1")
        if self.step_tokens_max < self.running_max:
            raise ValueError("step_tokens_max must be at least running_max")
        if self.inter_token_target_ms is not None and not self.inter_token_target_ms > 0.0:
            raise ValueError("inter_token_target_ms must be positive")


@dataclass(slots=True)
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
        self._queues = {priority: FairQueue() for priority in Priority}
        self._shares = {priority: FairShares() for priority in Priority}
        self._running: dict[Priority, list[SequenceState]] = {p: [] for p in Priority}
        self._cost = StepCost()
        self._budget = self._whole_step()
        self._aged: SequenceState | None = None
        self._batch_idle_steps = 0

    @property
    def running(self) -> int:
        """Sequences that hold blocks."""
        return sum(map(len, self._running.values()))

    @property
    def waiting(self) -> int:
        """Sequences queued, preempted ones included."""
        return sum(map(len, self._queues.values()))

    def queue_is_full(self, priority: Priority, key: bytes) -> bool:
        """Whether a new request must be refused: batch cannot fill the queue of the other class,
        and no key can take the last places from the others."""
        queue = self._queues[priority]
        free = self.limits.waiting_max - len(queue)
        return free <= 0 or queue.held_by(key) > free

    def enqueue(self, state: SequenceState) -> None:
        """Puts a new sequence into the queue of its class."""
        self._shares[state.priority].enter(state.key, state.request.fairness_weight)
        self._queues[state.priority].push(state)

    def remove(self, state: SequenceState) -> None:
        """Forgets a sequence that ended, wherever it was, and gives its blocks back."""
        self._shares[state.priority].leave(state.key)
        if state.blocks:
            self._running[state.priority].remove(state)
            self.pool.release(state.blocks)
            state.blocks = []
        else:
            self._queues[state.priority].remove(state)
        if state is self._aged:
            self._aged = None

    def decoding(self) -> list[SequenceState]:
        """Running sequences whose next token may be drawn by the next step."""
        return [s for s in self._all_running() if s.uncomputed == 1 and s.answer is not None]

    def plan(self) -> list[Share]:
        """The next step: non-empty whenever any sequence waits or runs."""
        preemptions_before = self.preemptions
        self._age_batch()
        self._budget = self._whole_step()
        shares: list[Share] = []
        for priority in Priority:
            members = self._running[priority]
            if priority is Priority.BATCH or any(state.completion for state in members):
                self._budget.bound()
            self._grow(priority)
            if self.preemptions == preemptions_before:
                self._admit(priority)
            if members:
                shares += self._deal(priority)
        self._note_batch_progress(shares)
        assert shares or not (self.running or self.waiting), "work is queued, but none was planned"
        return shares

    def took(self, duration_ms: float) -> None:
        """How long the planned step took, said once: the next ones are sized by it."""
        self._cost.observe(self._budget.load, duration_ms)
        self._budget.load = StepLoad()

    def commit(self, state: SequenceState, computed: int) -> None:
        """Records that the first `computed` tokens have KV; full blocks become findable."""
        assert state.computed < computed <= len(state.token_ids)
        state.computed = computed
        if computed > state.charged:
            prompt_tokens = max(0, min(computed, len(state.prompt_ids)) - state.charged)
            output_tokens = computed - state.charged - prompt_tokens
            self._shares[state.priority].charge(state.key, prompt_tokens, output_tokens)
            state.charged = computed
        full_blocks = computed // BLOCK_TOKENS
        if full_blocks > state.published:
            state.extend_digests()
            for index in range(state.published, full_blocks):
                self.pool.publish(state.blocks[index], state.digests[index])
            state.published = full_blocks

    def _whole_step(self) -> StepBudget:
        limits = self.limits
        return StepBudget(self._cost, limits.step_tokens_max, limits.inter_token_target_ms)

    def _all_running(self) -> Iterator[SequenceState]:
        """In order of service."""
        for members in self._running.values():
            yield from members

    def _deal(self, priority: Priority) -> list[Share]:
        members = self._running[priority]
        given = deal(
            members,
            self._shares[priority].ranked(dict.fromkeys(state.key for state in members)),
            self._budget,
            streams=priority is Priority.INTERACTIVE,
            leads=members[0] is next(self._all_running()),
        )
        return [_share(s, n) for s, n in zip(members, given, strict=True) if n]

    def _grow(self, priority: Priority) -> None:
        """Gives each running sequence of a class the block its newest token needs."""
        for state in list(self._running[priority]):
            missing = blocks_for(len(state.token_ids)) - len(state.blocks)
            if missing > 0 and state.blocks and self._free(missing, state):
                state.blocks += self.pool.allocate(missing)
        for state in self._running[priority]:
            if state.drafts:
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
        head = next(self._all_running())
        while self.pool.available < count:
            victim = choose_victim(
                (s for s in self._all_running() if s is not head and s.priority >= needy.priority),
                self._recompute_tokens,
            )
            self._preempt(victim)
            if victim is needy:
                return False
        return True

    def _recompute_tokens(self, state: SequenceState) -> int:
        """What preempting it now costs: all it has computed but what others hold as well. Its own
        blocks would stay findable, but they are wanted."""
        held = 0
        for block in state.blocks:
            if self.pool.owners(block) == 1:
                break
            held += BLOCK_TOKENS
        return max(0, state.computed - held)

    def _admit(self, priority: Priority) -> None:
        """Starts waiting sequences of a class, the least served key first, while they fit.

        The first that does not fit keeps the others out, so that it comes to its turn. Batch does
        not slip past an interactive request that waits: it yields to it.
        """
        queue = self._queues[priority]
        if not queue or (priority is Priority.BATCH and self._queues[Priority.INTERACTIVE]):
            return
        entry = Entry(priority, self._running, self._budget)
        passed: set[bytes] = set()
        while (state := queue.next(self._shares[priority], entry.pending, passed)) is not None:
            if not entry.admits(state):
                passed.add(state.key)
                continue
            matched = self.pool.match(state.findable_digests)
            if not self._make_room(state, matched):
                return
            queue.remove(state)
            self._start(state, matched)
            entry.add(state)

    def _make_room(self, state: SequenceState, matched: list[int]) -> bool:
        """Whether it fits now, after preempting others if that helps it."""
        victims: list[SequenceState] = []
        while not self._fits(state, matched, victims):
            yielding = self._yielding_to(state, victims)
            if not yielding:
                return False
            victims.append(choose_victim(yielding, self._recompute_tokens))
        for victim in victims:
            self._preempt(victim)
        return True

    def _yielding_to(
        self, state: SequenceState, victims: list[SequenceState]
    ) -> list[SequenceState]:
        """Batch yields to the other class, and within a class a key that runs several sequences to
        one that runs none: so a flood costs somebody else a step or two, not its whole length."""
        left = [s for s in self._all_running() if s not in victims]
        peers = [s for s in left if s.priority is state.priority]
        seats = Counter(s.key for s in peers)
        yielding = [s for s in left if s.priority > state.priority]
        if state.key not in seats:
            yielding += [s for s in peers if seats[s.key] > 1 and s is not left[0]]
        return yielding

    def _fits(self, state: SequenceState, matched: list[int], victims: list[SequenceState]) -> bool:
        """Whether `state` could start once `victims` are gone, with one block to spare for each
        other running sequence of its class or above: each needs one within sixteen steps, and
        admitting into that room would only bring preemptions."""
        if self.running - len(victims) >= self.limits.running_max:
            return False
        taken = Counter(block for victim in victims for block in victim.blocks)
        freed = {block for block, count in taken.items() if count == self.pool.owners(block)}
        hits_idle = sum(1 for b in matched if self.pool.owners(b) == 0 or b in freed)
        room = self.pool.available + len(freed) - hits_idle
        spare = sum(
            1 for s in self._all_running() if s.priority <= state.priority and s not in victims
        )
        return blocks_for(len(state.token_ids)) - len(matched) + spare <= room

    def _start(self, state: SequenceState, matched: list[int]) -> None:
        """Moves a sequence to running, on its prefix hits and fresh blocks for all known tokens."""
        self.pool.share(matched)
        fresh = blocks_for(len(state.token_ids)) - len(matched)
        state.blocks = matched + self.pool.allocate(fresh)
        state.computed = len(matched) * BLOCK_TOKENS
        state.published = len(matched)
        state.charged = max(state.charged, state.computed)
        if state.cached is None:
            state.cached = state.computed
            if state.leads:
                self.prompt_tokens += len(state.prompt_ids)
                self.prompt_tokens_cached += state.cached
        bisect.insort(self._running[state.priority], state, key=rank)

    def _preempt(self, victim: SequenceState) -> None:
        """Takes a sequence's blocks; it waits in its place of arrival and starts over from hits."""
        self._running[victim.priority].remove(victim)
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.published = 0
        victim.drafts.clear()
        victim.extend_digests()
        self.preemptions += 1
        self._queues[victim.priority].push(victim)

    def _age_batch(self) -> None:
        """Serves the oldest batch sequence as interactive when its class waited too long.

        One at a time, so that aging bounds the wait of batch without taking over the engine.
        """
        if self._aged or self._batch_idle_steps < self.limits.batch_wait_steps_max:
            return
        self._batch_idle_steps = 0
        running, queue = self._running[Priority.BATCH], self._queues[Priority.BATCH]
        first = queue.oldest()
        oldest = min([*running[:1], *([first] if first else [])], key=rank, default=None)
        if oldest is None:
            return
        self._aged = oldest
        self._shares[Priority.BATCH].leave(oldest.key)
        self._shares[Priority.INTERACTIVE].enter(oldest.key, oldest.request.fairness_weight)
        if oldest.blocks:
            running.remove(oldest)
            oldest.priority = Priority.INTERACTIVE
            bisect.insort(self._running[Priority.INTERACTIVE], oldest, key=rank)
        else:
            queue.remove(oldest)
            oldest.priority = Priority.INTERACTIVE
            self._queues[Priority.INTERACTIVE].push(oldest)

    def _note_batch_progress(self, shares: list[Share]) -> None:
        batch = Priority.BATCH
        served = any(share.state.request.priority is batch for share in shares)
        idle = bool(self._queues[batch] or self._running[batch]) and not served
        self._batch_idle_steps = self._batch_idle_steps + 1 if idle else 0


def _share(state: SequenceState, tokens: int) -> Share:
    drafts = max(0, tokens - state.uncomputed)
    del state.drafts[drafts:]
    return Share(state, tokens, drafts, tokens - drafts == state.uncomputed)
