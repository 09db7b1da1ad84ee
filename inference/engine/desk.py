"""The life of requests in an engine: admitted, fed to the scheduler, and finished exactly once.

Knows who is there and what each has used, not how steps are computed: `Engine` builds on it. It
never does I/O, never imports torch and is used from the engine's thread only.
"""

import logging
from collections.abc import Callable

from inference.contracts import (
    BLOCK_TOKENS,
    Finish,
    FinishReason,
    GenerationRequest,
    ModelLimits,
    RefusalCode,
)
from inference.engine.admission import Refusal, refusal_of
from inference.engine.answering.answer import Answer
from inference.engine.answering.detokenizer import TokenTexts
from inference.engine.answering.grammar import Grammars, new_matcher
from inference.engine.counters import EngineCounters
from inference.engine.deadlines import Deadlines
from inference.engine.request import RequestState, refused
from inference.engine.scheduling.block_pool import BlockPool
from inference.engine.scheduling.scheduler import Scheduler, SchedulerLimits
from inference.engine.sequence import SequenceState, new_sequence
from inference.engine.step import Runner

logger = logging.getLogger(__name__)

ENGINE_ERROR = "engine_error"
"""`error_code` of requests that the runner cannot compute."""


class RequestDesk:
    """Requests of one engine by id, and what they need of scheduler and counters."""

    def __init__(
        self,
        runner: Runner,
        texts: TokenTexts,
        limits: SchedulerLimits,
        clock: Callable[[], float],
        grammars: Grammars | None,
    ) -> None:
        self.counters = EngineCounters()
        self.limits = ModelLimits(
            context_tokens_max=runner.context_tokens_max,
            pool_tokens=runner.block_count * BLOCK_TOKENS,
            vocab_size=runner.vocab_size,
            embedding_dimensions=runner.hidden_size,
        )
        self._cache_key = runner.cache_key
        self._texts = texts
        self._clock = clock
        self._grammars = grammars
        self._pool = BlockPool(runner.block_count)
        self._scheduler = Scheduler(self._pool, limits)
        self._deadlines = Deadlines()
        self._requests: dict[str, RequestState] = {}
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return bool(self._requests)

    def submit(self, request: GenerationRequest) -> Finish | None:
        """Queues a request; a REFUSED finish where it can never run or may not wait."""
        refusal = self._refusal(request)
        if refusal is not None:
            self.counters.finished[FinishReason.REFUSED] += 1
            return refused(request.request_id, *refusal)
        self._arrivals += 1
        now_s = self._clock()
        state = RequestState(request, self._arrivals, now_s)
        self._requests[request.request_id] = state
        for limit_s in (request.queue_timeout_s, request.deadline_s):
            if limit_s is not None:
                self._deadlines.add(request.request_id, now_s + limit_s, self._requests)
        self._feed(state)
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
        request = self._requests.get(request_id)
        if request is None:
            return None
        return self._finish(request, reason, error_code=error_code, error_message=error_message)

    def _refusal(self, request: GenerationRequest) -> Refusal | None:
        if request.request_id in self._requests:
            return RefusalCode.DUPLICATE_REQUEST_ID, f"{request.request_id} is in progress"
        refusal = refusal_of(request, self.limits, self._grammars)
        if refusal is not None:
            return refusal
        if self._scheduler.queue_is_full(request.priority, request.fairness_key):
            return RefusalCode.QUEUE_FULL, "too many requests are waiting"
        return None

    def _feed(self, request: RequestState) -> None:
        """Queues as many of a request's sequences as may be now."""
        sampling = request.request.sampling
        while (choice := request.next_choice()) is not None:
            grammar = None if sampling is None else sampling.grammar
            state = new_sequence(
                request.request,
                choice,
                arrival=request.arrival,
                cache_key=self._cache_key,
                answer=None if sampling is None else Answer(self._texts, sampling),
                matcher=new_matcher(grammar, self._grammars),
            )
            request.live[choice] = state
            self._scheduler.enqueue(state)

    def _expired(self, now_s: float) -> list[Finish]:
        finishes = []
        for request_id in self._deadlines.due(now_s):
            request = self._requests.get(request_id)
            if request is None:
                continue
            asked, waited_s = request.request, now_s - request.submitted_at_s
            if asked.deadline_s is not None and waited_s >= asked.deadline_s:
                finishes.append(self._finish(request, FinishReason.TIMED_OUT))
            elif request.scheduled_at_s is None:
                finishes.append(
                    self._finish(
                        request,
                        FinishReason.REFUSED,
                        error_code=RefusalCode.QUEUE_TIMEOUT,
                        error_message=f"it did not start within {asked.queue_timeout_s} s",
                    )
                )
        return finishes

    def _is_live(self, state: SequenceState) -> bool:
        request = self._requests.get(state.request.request_id)
        return request is not None and request.live.get(state.choice) is state

    def _count_start(self, state: SequenceState, now_s: float) -> None:
        if not state.counted:
            state.counted = True
            if state.leads and state.cached is not None:
                self.counters.prompt_started(len(state.prompt_ids), state.cached)
            self._requests[state.request.request_id].started(state, now_s)

    def _fail(self, state: SequenceState, error: Exception) -> Finish:
        request_id = state.request.request_id
        logger.error("event=request_failed request=%s", request_id, exc_info=error)
        return self._finish(
            self._requests[request_id],
            FinishReason.ERROR,
            error_code=ENGINE_ERROR,
            error_message=f"the engine failed this request: {type(error).__name__}",
        )

    def _end_sequence(self, request: RequestState, state: SequenceState) -> None:
        del request.live[state.choice]
        self._scheduler.remove(state)

    def _finish(
        self,
        request: RequestState,
        reason: FinishReason,
        *,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> Finish:
        """Ends a request, exactly once: it is forgotten here and its blocks go back."""
        del self._requests[request.request.request_id]
        for state in list(request.live.values()):
            self._end_sequence(request, state)
        finish = request.finish(
            reason, self._clock(), error_code=error_code, error_message=error_message
        )
        self.counters.request_ended(reason, finish.timings)
        return finish
