"""What an engine counts about itself: exact counters, histograms, and a trace of its last steps.

Named as in vLLM, so that its dashboards work here. Pure arithmetic on values it is handed; the
engine feeds it, `stats` frames carry it to whoever serves metrics.
"""

import bisect
from collections import deque
from collections.abc import Iterable, Sequence

from inference.contracts import FinishReason, Histogram, Priority, StepTrace, Timings

TRACE_STEPS_MAX = 2048
"""Steps that the trace keeps: some minutes of a busy CPU engine, half a minute of a GPU's."""

_LATENCY_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0)
_REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BOUNDS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": (0.01, *_REQUEST_S),
    "inter_token_latency_seconds": _LATENCY_S,
    "request_queue_time_seconds": (0.01, *_REQUEST_S),
    "request_prefill_time_seconds": (0.01, *_REQUEST_S),
    "request_decode_time_seconds": _REQUEST_S,
    "e2e_request_latency_seconds": _REQUEST_S,
    "iteration_tokens_total": _STEP_TOKENS,
}
"""Upper bounds by the name that a metric has behind `vllm:`."""


class _Observations:
    """One histogram while it grows."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float, count: int) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += count
        self._total += value * count

    def snapshot(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)


class EngineCounters:
    """Counts that only rise, and the trace."""

    def __init__(self) -> None:
        self.steps = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generated_tokens = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
        self.finished = dict.fromkeys(map(str, FinishReason), 0)
        self.trace: deque[StepTrace] = deque(maxlen=TRACE_STEPS_MAX)
        self._observations = {name: _Observations(bounds) for name, bounds in BOUNDS.items()}

    def observe(self, name: str, value: float, count: int = 1) -> None:
        """Adds `count` equal observations to the histogram of that name (a key of BOUNDS)."""
        self._observations[name].add(value, count)

    def prompt_started(self, tokens: int, cached_tokens: int) -> None:
        """Takes note of a prompt that is computed for the first time, for all its choices."""
        self.prompt_tokens += tokens
        self.prompt_tokens_cached += cached_tokens

    def step(
        self,
        *,
        began_s: float,
        ended_s: float,
        shares: Iterable[tuple[Priority, int]],
        running: int,
        waiting: int,
        preempted: int,
    ) -> None:
        """Takes note of a step that was computed; `shares` are its tokens by class."""
        tokens = dict.fromkeys(Priority, 0)
        for priority, count in shares:
            tokens[priority] += count
        self.steps += 1
        self.trace.append(
            StepTrace(
                step=self.steps,
                ended_at_s=ended_s,
                duration_ms=(ended_s - began_s) * 1000,
                running=running,
                waiting=waiting,
                interactive_tokens=tokens[Priority.INTERACTIVE],
                batch_tokens=tokens[Priority.BATCH],
                preempted=preempted,
            )
        )
        self.observe("iteration_tokens_total", sum(tokens.values()))

    def request_ended(self, reason: FinishReason, timings: Timings) -> None:
        """Takes note of a request's one finish; times count for answers that came to their end."""
        self.finished[reason] += 1
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            self.observe("request_queue_time_seconds", timings.queue_ms / 1000)
            self.observe("request_prefill_time_seconds", timings.prefill_ms / 1000)
            self.observe("request_decode_time_seconds", timings.decode_ms / 1000)
            elapsed_ms = timings.queue_ms + timings.prefill_ms + timings.decode_ms
            self.observe("e2e_request_latency_seconds", elapsed_ms / 1000)

    def histograms(self) -> dict[str, Histogram]:
        """Snapshots of all, by name."""
        return {name: grown.snapshot() for name, grown in self._observations.items()}
