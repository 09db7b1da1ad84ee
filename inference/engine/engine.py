"""The synchronous core of an engine: requests in, one step at a time, chunks and finishes out.

Plans, computes and takes what was drawn, with the stopping rules and the counts that are billed;
the life of requests around it is the desk's. It never does I/O, never imports torch and is used
from one thread only: the server's step loop, tests and benchmarks call it.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from inference.contracts import Chunk, EngineStats, Finish, FinishReason, RefusalCode
from inference.engine.answering.detokenizer import TokenTexts
from inference.engine.answering.grammar import Grammars, GrammarTooComplex
from inference.engine.desk import RequestDesk
from inference.engine.drafting.speculation import Drafter
from inference.engine.drawing import check_outputs, sequence_step, without_drafts
from inference.engine.progress import embedding_bytes, take_drawn, take_pooled
from inference.engine.request import RequestState
from inference.engine.scheduling.scheduler import SchedulerLimits, Share
from inference.engine.sequence import SequenceState
from inference.engine.step import Runner, SequenceStep, StepOutput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step produced; requests that finished in it may have chunks as well."""

    chunks: tuple[Chunk, ...] = ()
    finishes: tuple[Finish, ...] = ()


class Engine(RequestDesk):
    """Continuous batching over one runner. `stop_ids` are the model's end-of-sequence tokens;
    `clock` returns monotonic seconds. Without `grammars` constrained requests are refused; without
    a `drafter` nothing is guessed."""

    def __init__(
        self,
        runner: Runner,
        texts: TokenTexts,
        *,
        stop_ids: Collection[int],
        limits: SchedulerLimits,
        clock: Callable[[], float],
        grammars: Grammars | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        super().__init__(runner, texts, limits, clock, grammars)
        self._runner = runner
        self._stop_ids = frozenset(stop_ids)
        self._drafter = drafter

    def step(self) -> StepResult:
        """Computes one step. Requests that the runner raises for end; their neighbours go on."""
        began_s = self._clock()
        finishes = self._expired(began_s)
        self._draft()
        preemptions = self._scheduler.preemptions
        shares = self._next_shares(began_s)
        if not shares:
            return StepResult(finishes=tuple(finishes))
        for share in shares:
            self._count_start(share.state, began_s)
        chunks: list[Chunk] = []
        for share, output in self._compute(shares, finishes):
            # A request that failed in this step is over for all of its sequences.
            if self._is_live(share.state):
                self._take(share, output, chunks, finishes)
        ended_s = self._clock()
        self._scheduler.took((ended_s - began_s) * 1000)
        self.counters.step(
            began_s=began_s,
            ended_s=ended_s,
            shares=[(share.state.request.priority, share.tokens) for share in shares],
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            preempted=self._scheduler.preemptions - preemptions,
        )
        return StepResult(tuple(chunks), tuple(finishes))

    def stats(self) -> EngineStats:
        """A snapshot; the server fills in what only it knows (journal, step age)."""
        counters = self.counters
        interactive_running, interactive_waiting = self._scheduler.interactive
        return EngineStats(
            step=counters.steps,
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            blocks_total=self._pool.block_count,
            blocks_used=self._pool.used,
            blocks_cached=self._pool.cached,
            prompt_tokens=counters.prompt_tokens,
            prompt_tokens_cached=counters.prompt_tokens_cached,
            generation_tokens=counters.generated_tokens,
            preemptions=self._scheduler.preemptions,
            finished=dict(counters.finished),
            journal_unacknowledged=0,
            step_age_s=0.0,
            drafted_tokens=counters.drafted_tokens,
            accepted_tokens=counters.accepted_tokens,
            histograms=counters.histograms(),
            interactive_running=interactive_running,
            interactive_waiting=interactive_waiting,
        )

    def check(self) -> None:
        """Asserts the invariants of the block pool; cheap enough for an idle engine."""
        self._pool.check()
        if not self._requests:
            assert self._pool.used == 0, f"{self._pool.used} blocks used by nobody"

    def _draft(self) -> None:
        if self._drafter is None:
            return
        states = self._scheduler.decoding()
        try:
            self._drafter.draft(states)
        except Exception:
            # A process edge, as in `_compute`: no request fails for want of guesses.
            logger.exception("event=speculation_failed next=without")
            self._drafter = None
            for state in states:
                state.drafts = []

    def _next_shares(self, now_s: float) -> list[Share]:
        return self._scheduler.plan()

    def _compute(
        self, shares: list[Share], finishes: list[Finish]
    ) -> list[tuple[Share, StepOutput]]:
        """The shares with their outputs; requests that cannot be computed end.

        A runner that raises does not say for whom, so each share is tried again alone. KV is
        written by position: computing it twice changes nothing.
        """
        orders = self._orders(shares, finishes)
        shares = [share for share, _ in orders]
        if not shares:
            return []
        try:
            outputs = self._runner.execute([order for _, order in orders])
            check_outputs(shares, outputs, self._runner.vocab_size)
            return list(zip(shares, outputs, strict=True))
        except Exception as error:  # noqa: BLE001  the engine loop is a process edge: it goes on
            if len(shares) == 1 and shares[0].drafts:
                return self._compute([without_drafts(shares[0])], finishes)
            if len(shares) == 1:
                finishes.append(self._fail(shares[0].state, error))
                return []
            logger.warning("event=step_failed shares=%d next=one_by_one", len(shares))
        return [pair for share in shares for pair in self._compute([share], finishes)]

    def _orders(
        self, shares: list[Share], finishes: list[Finish]
    ) -> list[tuple[Share, SequenceStep]]:
        """What the runner is asked for. A grammar that gave up ends its own request here, before
        anything is computed with it."""
        orders = []
        for share in shares:
            if not self._is_live(share.state):
                continue
            try:
                orders.append((share, sequence_step(share, self._stop_ids)))
            except GrammarTooComplex as error:
                finishes.append(
                    self._finish(
                        self._requests[share.state.request.request_id],
                        FinishReason.ERROR,
                        error_code=RefusalCode.INVALID_GRAMMAR,
                        error_message=str(error),
                    )
                )
        return orders

    def _take(
        self, share: Share, output: StepOutput, chunks: list[Chunk], finishes: list[Finish]
    ) -> None:
        """Adds what a step gave to a sequence, and ends what is complete with it."""
        state = share.state
        request = self._requests[state.request.request_id]
        if state.answer is None:
            take_pooled(state, output.pooled)
        if not share.reaches_end:
            self._scheduler.commit(state, state.computed + share.tokens)
            return
        if state.answer is None:
            chunk = self._embedded(share, request)
        else:
            chunk = self._drawn(share, output, request)
        chunks.append(chunk)
        if chunk.finish_reason is not None:
            self._end_sequence(request, state)
            if chunk.finish_reason is FinishReason.LENGTH:
                request.reason = FinishReason.LENGTH
        self._feed(request)
        if request.ended:
            finishes.append(self._finish(request, request.reason))

    def _embedded(self, share: Share, request: RequestState) -> Chunk:
        state = share.state
        self._scheduler.commit(state, len(state.token_ids))
        self._note_tokens(request, state, 1)
        return Chunk(
            request_id=state.request.request_id,
            text="",
            token_ids=(),
            counts=request.counts,
            choice=state.choice,
            finish_reason=FinishReason.STOP,
            embedding=embedding_bytes(state),
        )

    def _drawn(self, share: Share, output: StepOutput, request: RequestState) -> Chunk:
        state, counters = share.state, self.counters
        if state.completion == 0:
            request.prompt_computed(state)
        progress = take_drawn(state, output.drawn, self._stop_ids)
        tokens = len(progress.token_ids)
        # The last token's KV does not exist yet, nor that of drafts that were wrong.
        self._scheduler.commit(state, len(state.token_ids) - 1)
        request.completion_tokens += tokens
        counters.generated_tokens += tokens
        if share.drafts and self._drafter is not None:
            counters.drafted_tokens += share.drafts
            counters.accepted_tokens += progress.accepted
            self._drafter.checked(state, share.drafts, progress.accepted)
        self._note_tokens(request, state, tokens)
        return Chunk(
            request_id=state.request.request_id,
            text=progress.text,
            token_ids=progress.token_ids,
            counts=request.counts,
            choice=state.choice,
            logprobs=progress.logprobs,
            finish_reason=progress.reason,
        )

    def _note_tokens(self, request: RequestState, state: SequenceState, tokens: int) -> None:
        now_s = self._clock()
        if request.first_token_at_s is None:
            request.first_token_at_s = now_s
            self.counters.observe("time_to_first_token_seconds", now_s - request.submitted_at_s)
        elif state.last_token_at_s is not None:
            between_s = (now_s - state.last_token_at_s) / tokens
            self.counters.observe("inter_token_latency_seconds", between_s, tokens)
        state.last_token_at_s = now_s

    def _end_sequence(self, request: RequestState, state: SequenceState) -> None:
        super()._end_sequence(request, state)
        if self._drafter is not None:
            self._drafter.forget(state)
