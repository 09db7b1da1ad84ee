"""The synchronous core of an engine: requests in, one step at a time, chunks and finishes out.

Owns the life of each request from admission to its one finish, the stopping rules and the counts
that are billed. It never does I/O, never imports torch and is used from one thread only: the
server's step loop, tests and benchmarks call it.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from inference.contracts import (
    BLOCK_TOKENS,
    Chunk,
    EngineStats,
    Finish,
    FinishReason,
    GenerationRequest,
    ModelLimits,
    RefusalCode,
    TokenCounts,
)
from inference.engine.block_pool import BlockPool
from inference.engine.detokenizer import Detokenizer, TokenTexts
from inference.engine.request import RequestState, new_state
from inference.engine.scheduler import Scheduler, SchedulerLimits, Share
from inference.engine.step import Runner, SampleSpec, SequenceStep

logger = logging.getLogger(__name__)

ENGINE_ERROR = "engine_error"
"""`error_code` of requests that the runner cannot compute."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step produced; requests that finished in it may have a chunk as well."""

    chunks: tuple[Chunk, ...] = ()
    finishes: tuple[Finish, ...] = ()


class Engine:
    """Continuous batching over one runner. `stop_ids` are the model's end-of-sequence tokens;
    `clock` returns monotonic seconds."""

    def __init__(
        self,
        runner: Runner,
        texts: TokenTexts,
        *,
        stop_ids: Collection[int],
        limits: SchedulerLimits,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._texts = texts
        self._stop_ids = frozenset(stop_ids)
        self._clock = clock
        self._pool = BlockPool(runner.block_count)
        self._scheduler = Scheduler(self._pool, limits)
        self._states: dict[str, RequestState] = {}
        self._arrivals = 0
        self._steps = 0
        self._generated = 0
        self._finished = dict.fromkeys(map(str, FinishReason), 0)
        self.limits = ModelLimits(
            context_tokens_max=runner.context_tokens_max,
            pool_tokens=runner.block_count * BLOCK_TOKENS,
            vocab_size=runner.vocab_size,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return bool(self._states)

    def submit(self, request: GenerationRequest) -> Finish | None:
        """Queues a request; a REFUSED finish where it can never run or may not wait."""
        refusal = self._refusal(request)
        if refusal is not None:
            self._finished[FinishReason.REFUSED] += 1
            return refused(request.request_id, *refusal)
        self._arrivals += 1
        state = new_state(
            request,
            arrival=self._arrivals,
            cache_key=self._runner.cache_key,
            detokenizer=Detokenizer(self._texts),
            now_s=self._clock(),
        )
        self._states[request.request_id] = state
        self._scheduler.enqueue(state)
        return None

    def abort(
        self,
        request_id: str,
        reason: FinishReason = FinishReason.CANCELLED,
        *,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> Finish | None:
        """Ends a request between two steps; None if it is unknown or has already ended."""
        state = self._states.get(request_id)
        if state is None:
            return None
        return self._finish(state, reason, error_code=error_code, error_message=error_message)

    def step(self) -> StepResult:
        """Computes one step. Requests that the runner raises for end; their neighbours go on."""
        shares = self._scheduler.plan()
        if not shares:
            return StepResult()
        now_s = self._clock()
        for share in shares:
            if share.state.scheduled_at_s is None:
                share.state.scheduled_at_s = now_s
        self._steps += 1
        computed, finishes = self._compute(shares)
        self._scheduler.commit([share for share, _ in computed])
        chunks: list[Chunk] = []
        for share, token_id in computed:
            if token_id is not None:
                self._accept(share.state, token_id, chunks, finishes)
        return StepResult(tuple(chunks), tuple(finishes))

    def stats(self) -> EngineStats:
        """A snapshot; the server fills in what only it knows (journal, step age)."""
        return EngineStats(
            step=self._steps,
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            blocks_total=self._pool.block_count,
            blocks_used=self._pool.used,
            blocks_cached=self._pool.cached,
            prompt_tokens=self._scheduler.prompt_tokens,
            prompt_tokens_cached=self._scheduler.prompt_tokens_cached,
            generation_tokens=self._generated,
            preemptions=self._scheduler.preemptions,
            finished=dict(self._finished),
            journal_unacknowledged=0,
            step_age_s=0.0,
        )

    def check(self) -> None:
        """Asserts the invariants of the block pool; cheap enough for an idle engine."""
        self._pool.check()
        if not self._states:
            assert self._pool.used == 0, f"{self._pool.used} blocks used by nobody"

    def _refusal(self, request: GenerationRequest) -> tuple[RefusalCode, str] | None:
        vocab_size = self._runner.vocab_size
        prompt_tokens = len(request.prompt_ids)
        total = prompt_tokens + request.sampling.max_tokens
        if request.request_id in self._states:
            return RefusalCode.DUPLICATE_REQUEST_ID, f"{request.request_id} is in progress"
        if not prompt_tokens:
            return RefusalCode.INVALID_REQUEST, "the prompt is empty"
        if any(not 0 <= token_id < vocab_size for token_id in request.prompt_ids):
            return RefusalCode.INVALID_REQUEST, f"a prompt id is outside 0 .. {vocab_size - 1}"
        if any(not 0 <= token_id < vocab_size for token_id in request.sampling.stop_token_ids):
            return RefusalCode.INVALID_REQUEST, f"a stop token id is outside 0 .. {vocab_size - 1}"
        if total > self.limits.request_tokens_max():
            return RefusalCode.CONTEXT_LENGTH_EXCEEDED, (
                f"{prompt_tokens} prompt tokens and up to {request.sampling.max_tokens} more "
                f"are over {self.limits.request_tokens_max()}"
            )
        if self._scheduler.queue_is_full(request.priority):
            return RefusalCode.QUEUE_FULL, "too many requests are waiting"
        return None

    def _compute(self, shares: list[Share]) -> tuple[list[tuple[Share, int | None]], list[Finish]]:
        """The shares with what was drawn for them, and the ends of those that cannot be computed.

        A runner that raises does not say for whom, so each share is tried again alone. KV is
        written by position: computing it twice changes nothing.
        """
        try:
            drawn = self._runner.execute([self._sequence_step(share) for share in shares])
            self._check_drawn(shares, drawn)
            return list(zip(shares, drawn, strict=True)), []
        except Exception as error:  # noqa: BLE001  the engine loop is a process edge: it goes on
            if len(shares) == 1:
                return [], [self._fail(shares[0].state, error)]
            logger.warning("event=step_failed shares=%d next=one_by_one", len(shares))
        alone = [self._compute([share]) for share in shares]
        return [one for computed, _ in alone for one in computed], [
            finish for _, finishes in alone for finish in finishes
        ]

    def _sequence_step(self, share: Share) -> SequenceStep:
        state, sampling = share.state, share.state.request.sampling
        return SequenceStep(
            request_id=state.request.request_id,
            token_ids=state.token_ids[state.computed : state.computed + share.tokens],
            start=state.computed,
            block_table=state.blocks,
            sample=SampleSpec(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                seed=sampling.seed,
                position=state.completion,
            )
            if share.samples
            else None,
        )

    def _check_drawn(self, shares: list[Share], drawn: list[int | None]) -> None:
        if len(drawn) != len(shares):
            raise ValueError(f"{len(drawn)} results for {len(shares)} sequence steps")
        for share, token_id in zip(shares, drawn, strict=True):
            if share.samples != (token_id is not None):
                raise ValueError(f"token {token_id} drawn where samples={share.samples}")
            if token_id is not None and not 0 <= token_id < self._runner.vocab_size:
                raise ValueError(f"token {token_id} is outside the vocabulary")

    def _fail(self, state: RequestState, error: Exception) -> Finish:
        logger.error("event=request_failed request=%s", state.request.request_id, exc_info=error)
        return self._finish(
            state,
            FinishReason.ERROR,
            error_code=ENGINE_ERROR,
            error_message=f"the engine failed this request: {type(error).__name__}",
        )

    def _accept(
        self, state: RequestState, token_id: int, chunks: list[Chunk], finishes: list[Finish]
    ) -> None:
        """Appends a drawn token: its chunk, and the finish if it is the last one."""
        if state.first_token_at_s is None:
            state.first_token_at_s = self._clock()
        state.token_ids.append(token_id)
        self._generated += 1
        sampling = state.request.sampling
        is_stop_token = token_id in sampling.stop_token_ids or (
            token_id in self._stop_ids and not sampling.ignore_eos
        )
        # A stop token ends the output and is no part of its text, even where it has bytes.
        piece = "" if is_stop_token else state.detokenizer.push(token_id)
        text, stopped = state.stop_strings.push(piece)
        chunks.append(Chunk(state.request.request_id, text, (token_id,), state.counts))
        if stopped:
            state.detokenizer.flush()
            finishes.append(self._finish(state, FinishReason.STOP))
        elif is_stop_token:
            finishes.append(self._finish(state, FinishReason.STOP))
        elif state.completion >= sampling.max_tokens:
            finishes.append(self._finish(state, FinishReason.LENGTH))

    def _finish(
        self,
        state: RequestState,
        reason: FinishReason,
        *,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> Finish:
        """Ends a request, exactly once: it is forgotten here and its blocks go back."""
        del self._states[state.request.request_id]
        self._scheduler.remove(state)
        tail, stopped = state.stop_strings.push(state.detokenizer.flush())
        if not stopped:
            tail += state.stop_strings.flush()
        elif reason is FinishReason.LENGTH:
            reason = FinishReason.STOP
        self._finished[reason] += 1
        return Finish(
            request_id=state.request.request_id,
            reason=reason,
            text=tail,
            counts=state.counts,
            sent=state.counts if state.request.stream else TokenCounts(),
            timings=state.timings(self._clock()),
            error_code=error_code,
            error_message=error_message,
        )


def refused(request_id: str, code: RefusalCode, message: str) -> Finish:
    """The finish of a request that was never admitted."""
    return Finish(
        request_id=request_id,
        reason=FinishReason.REFUSED,
        text="",
        counts=TokenCounts(),
        sent=TokenCounts(),
        error_code=code,
        error_message=message,
    )
