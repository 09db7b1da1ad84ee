"""Plans each step: which requests run, how many tokens each computes, and in which blocks.

There is no prefill or decode phase: a running request has tokens known and tokens computed, and a
plan hands out one token budget. Pure bookkeeping without torch, clock or I/O; called by the engine
between runner calls. Progress is guaranteed: the first running request in order of service is never
preempted, gets tokens in every step, and fits the pool alone (checked at admission).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inference.contracts import BLOCK_TOKENS, Priority
from inference.engine.scheduling.block_pool import BlockPool
from inference.engine.scheduling.entry import Entry
from inference.engine.scheduling.fairness import FairQueue, FairShares
from inference.engine.scheduling.policy import deal
from inference.engine.scheduling.seats import Seats
from inference.engine.scheduling.step_budget import StepBudget, StepCost, StepLoad
from inference.engine.sequence import SequenceState, rank

BATCH_PART = 0.5
"""Batch fills a step up to this part of the target: who comes meanwhile waits for its end."""
BATCH_SURE_PART = 0.25
"""This part of a step that fits it is left to batch where others only decode: those of many streams
take half of the target by themselves, and batch would stand still beside them."""
QUIET_PART = 0.1
QUIET_TARGETS = 6.0
"""Batch alone may fill so much of the time that nobody has waited for, up to its part of so many
targets: more sequences share a pass over the weights, and only the first who comes after a silence
waits, for a tenth of it at most."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """`step_tokens_max` tokens computed per step; `running_max` sequences with blocks;
    `waiting_max` sequences queued per class, of which one key gets as long as more are free than it
    holds; `inter_token_target_ms` is how long a step may take while somebody waits for the next
    token of an answer or in a queue (None: as its tokens take), half of which batch may fill; once
    nobody has waited for a while, batch alone may take longer; after
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
        self._seats = Seats(pool, limits.running_max)
        self._queues = [FairQueue() for _ in Priority]
        self._shares = [FairShares() for _ in Priority]
        self._cost = StepCost()
        self._quiet_ms = 0.0
        self._budget = self._whole_step()
        self._aged: SequenceState | None = None
        self._batch_idle_steps = 0

    @property
    def running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._seats)

    @property
    def waiting(self) -> int:
        """Sequences queued, preempted ones included."""
        return sum(map(len, self._queues))

    @property
    def interactive(self) -> tuple[int, int]:
        """How many of the running and of the waiting were submitted as interactive."""
        aged, first = self._aged, Priority.INTERACTIVE
        running, waiting = len(self._seats.by_class[first]), len(self._queues[first])
        if aged is None:
            return running, waiting
        seated = bool(aged.blocks)
        return running - seated, waiting - (not seated)

    def queue_is_full(self, priority: Priority, key: bytes) -> bool:
        """Whether a new request must be refused: batch cannot fill the queue of the other class,
        and no key can take the last places from the others."""
        queue = self._queues[priority]
        free = self.limits.waiting_max - len(queue)
        return queue.held_by(key) >= free

    def enqueue(self, state: SequenceState) -> None:
        """Puts a new sequence into the queue of its class."""
        self._shares[state.priority].enter(state.key, state.request.fairness_weight)
        self._queues[state.priority].push(state)

    def remove(self, state: SequenceState) -> None:
        """Forgets a sequence that ended, wherever it was, and gives its blocks back."""
        self._shares[state.priority].leave(state.key)
        if state.blocks:
            self._seats.leave(state)
        else:
            self._queues[state.priority].remove(state)
        if state is self._aged:
            self._aged = None

    def decoding(self) -> list[SequenceState]:
        """Running sequences whose next token may be drawn by the next step."""
        return [s for s in self._seats if s.uncomputed == 1 and s.answer is not None]

    def plan(self) -> list[Share]:
        """The next step: non-empty whenever any sequence waits or runs."""
        preemptions_before = self.preemptions
        self._age_batch()
        if any(self.interactive):
            self._quiet_ms = 0.0
        self._budget = self._whole_step()
        shares: list[Share] = []
        for priority in Priority:
            members = self._seats.by_class[priority]
            if priority is Priority.BATCH:
                reading = any(not share.state.completion for share in shares)
                self._budget.bound(BATCH_PART, 0.0 if reading else BATCH_SURE_PART)
            elif any(state.completion for state in members):
                self._budget.bound()
            self._grow(members)
            if self.preemptions == preemptions_before:
                self._admit(priority)
            if self._queues[Priority.INTERACTIVE]:
                self._budget.bound()
            if members:
                shares += self._deal(priority)
        self._note_batch_progress(shares)
        assert shares or not (self.running or self.waiting), "work is queued, but none was planned"
        return shares

    def reserve_next(self, states: Sequence[SequenceState]) -> bool:
        """Gives each of these running sequences the block that the token after its newest will
        need; False, and nothing given, if that would take somebody's place."""
        return self._seats.grow_all(states)

    def took(self, duration_ms: float) -> None:
        """How long the planned step took, said once: the next ones are sized by it."""
        self._quiet_ms += duration_ms
        self._cost.observe(self._budget.load, duration_ms)
        self._budget.load = StepLoad()

    def commit(self, state: SequenceState, computed: int) -> None:
        """Records that the first `computed` tokens have KV; full blocks become findable."""
        assert state.computed < computed <= len(state.token_ids)
        state.computed = computed
        if computed > state.charged:
            prompt_tokens = min(computed, len(state.prompt_ids)) - state.charged
            if prompt_tokens < 0:
                prompt_tokens = 0
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
        target_ms = self.limits.inter_token_target_ms
        if target_ms is not None:
            quiet_ms = QUIET_PART / BATCH_PART * self._quiet_ms
            target_ms = max(target_ms, min(quiet_ms, QUIET_TARGETS * target_ms))
        return StepBudget(self._cost, self.limits.step_tokens_max, target_ms)

    def _grow(self, members: Sequence[SequenceState]) -> None:
        """Gives each running sequence of a class the block its newest token needs."""
        for state in [s for s in members if len(s.blocks) * BLOCK_TOKENS < len(s.token_ids)]:
            # Those before it may have taken its seat.
            while state.blocks and not self._seats.grow(state, len(state.token_ids)):
                self._preempt(self._seats.victim_for(state))
        for state in [s for s in members if s.drafts]:
            # Guesses are worth a free block, but nobody's place.
            if not self._seats.grow(state, len(state.token_ids) + len(state.drafts)):
                state.drafts.clear()

    def _admit(self, priority: Priority) -> None:
        """Starts waiting sequences of a class, the least served key first, while they fit.

        The first that does not fit keeps the others out, so that it comes to its turn. Batch does
        not slip past an interactive request that waits: it yields to it.
        """
        queue = self._queues[priority]
        if not queue or (priority is Priority.BATCH and self._queues[Priority.INTERACTIVE]):
            return
        if self._seats.settled(priority, queue.keys):
            return
        entry = Entry(priority, self._seats.by_class, self._budget)
        passed: set[bytes] = set()
        while (state := queue.next(self._shares[priority], entry.pending, passed)) is not None:
            if not entry.admits(state):
                passed.add(state.key)
                continue
            matched = self.pool.match(state.findable_digests)
            victims = self._seats.room_for(state, matched)
            if victims is None:
                return
            for victim in victims:
                self._preempt(victim)
            queue.remove(state)
            self._start(state, matched)
            entry.add(state)

    def _start(self, state: SequenceState, matched: list[int]) -> None:
        self._seats.take(state, matched)
        state.charged = max(state.charged, state.computed)
        if state.cached is None:
            state.cached = state.computed

    def _preempt(self, victim: SequenceState) -> None:
        """It waits in its place of arrival and starts over from what is still found by then."""
        self._seats.leave(victim)
        victim.extend_digests()
        self._queues[victim.priority].push(victim)
        self.preemptions += 1

    def _deal(self, priority: Priority) -> list[Share]:
        members = self._seats.by_class[priority]
        given = deal(
            members,
            self._shares[priority].ranked,
            self._budget,
            streams=priority is Priority.INTERACTIVE,
            leads=members[0] is next(iter(self._seats)),
        )
        return [_share(s, n) for s, n in zip(members, given, strict=True) if n]

    def _age_batch(self) -> None:
        """Serves the oldest batch sequence as interactive when its class waited too long.

        One at a time, so that aging bounds the wait of batch without taking over the engine.
        """
        if self._aged or self._batch_idle_steps < self.limits.batch_wait_steps_max:
            return
        self._batch_idle_steps = 0
        queue = self._queues[Priority.BATCH]
        candidates = [*self._seats.by_class[Priority.BATCH][:1], *queue.first()]
        if not candidates:
            return
        self._aged = oldest = min(candidates, key=rank)
        self._shares[Priority.BATCH].leave(oldest.key)
        self._shares[Priority.INTERACTIVE].enter(oldest.key, oldest.request.fairness_weight)
        if oldest.blocks:
            self._seats.change_class(oldest, Priority.INTERACTIVE)
        else:
            queue.remove(oldest)
            oldest.priority = Priority.INTERACTIVE
            self._queues[Priority.INTERACTIVE].push(oldest)

    def _note_batch_progress(self, shares: Sequence[Share]) -> None:
        batch = Priority.BATCH
        idle = (self._queues[batch] or self._seats.by_class[batch]) and not any(
            share.state.request.priority is batch for share in shares
        )
        self._batch_idle_steps = self._batch_idle_steps + 1 if idle else 0


def _share(state: SequenceState, tokens: int) -> Share:
    uncomputed = len(state.token_ids) - state.computed
    if not state.drafts:
        return Share(state, tokens, 0, tokens == uncomputed)
    drafts = max(0, tokens - uncomputed)
    del state.drafts[drafts:]
    return Share(state, tokens, drafts, tokens - drafts == uncomputed)
