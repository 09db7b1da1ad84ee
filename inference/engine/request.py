"""The state of one request: its sequences, what it has used, and where its time went.

Hands out its sequences a few at a time, the further choices of a prompt only once the first one has
computed it, so that they find it in the prefix cache. Owned by the engine; the scheduler sees
sequences only.
"""

from collections import deque
from dataclasses import dataclass, field

from inference.contracts import (
    Finish,
    FinishReason,
    GenerationRequest,
    RefusalCode,
    Timings,
    TokenCounts,
)
from inference.engine.sequence import SequenceState

SEQUENCES_LIVE_MAX = 64
"""Sequences of one request that are queued or running at once; the others wait in the request."""


@dataclass(slots=True, eq=False)
class RequestState:
    """One admitted request. `live` maps a choice to its sequence while that is queued or runs."""

    request: GenerationRequest
    arrival: int
    submitted_at_s: float
    live: dict[int, SequenceState] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reason: FinishReason = FinishReason.STOP
    scheduled_at_s: float | None = None
    first_token_at_s: float | None = None
    _leaders: deque[int] = field(default_factory=deque)
    _followers: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._leaders.extend(
            range(0, len(self.request.prompts) * self.request.choices, self.request.choices)
        )

    @property
    def counts(self) -> TokenCounts:
        """What this request has used so far; nothing of a prompt that was never started."""
        return TokenCounts(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

    @property
    def ended(self) -> bool:
        """Whether no sequence is left."""
        return not (self.live or self._leaders or self._followers)

    def next_choice(self) -> int | None:
        """The choice to queue now, if one may be: the followers of computed prompts go first."""
        if len(self.live) >= SEQUENCES_LIVE_MAX:
            return None
        for ready in (self._followers, self._leaders):
            if ready:
                return ready.popleft()
        return None

    def started(self, state: SequenceState, now_s: float) -> None:
        """Counts a prompt when its leader computes for the first time."""
        assert state.cached is not None
        if self.scheduled_at_s is None:
            self.scheduled_at_s = now_s
        if state.leads:
            self.prompt_tokens += len(state.prompt_ids)
            self.cached_tokens += state.cached

    def prompt_computed(self, state: SequenceState) -> None:
        """Lets the other choices of a prompt go once its leader has drawn its first token."""
        if state.leads:
            self._followers.extend(range(state.choice + 1, state.choice + self.request.choices))

    def finish(
        self,
        reason: FinishReason,
        now_s: float,
        *,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> Finish:
        """What is said of the request when it ends now."""
        return Finish(
            request_id=self.request.request_id,
            reason=reason,
            counts=self.counts,
            sent=self.counts if self.request.stream else TokenCounts(),
            timings=self._timings(now_s),
            error_code=error_code,
            error_message=error_message,
        )

    def _timings(self, now_s: float) -> Timings:
        scheduled_at_s = self.scheduled_at_s if self.scheduled_at_s is not None else now_s
        first_token_at_s = self.first_token_at_s if self.first_token_at_s is not None else now_s
        return Timings(
            queue_ms=round((scheduled_at_s - self.submitted_at_s) * 1000),
            prefill_ms=round((first_token_at_s - scheduled_at_s) * 1000),
            decode_ms=round((now_s - first_token_at_s) * 1000),
        )


def refused(request_id: str, code: RefusalCode, message: str) -> Finish:
    """The finish of a request that was never admitted."""
    return Finish(
        request_id=request_id,
        reason=FinishReason.REFUSED,
        counts=TokenCounts(),
        sent=TokenCounts(),
        error_code=code,
        error_message=message,
    )
