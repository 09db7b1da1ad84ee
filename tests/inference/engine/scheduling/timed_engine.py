"""An engine whose steps take as long as a formula says, on a clock that only they move."""

import random
from collections.abc import Sequence

from inference.contracts import FinishReason, GenerationRequest, Priority, SamplingParams
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.driving import Clock, make_engine
from tests.inference.engine.stub_runner import StubRunner


class TimedRunner(StubRunner):
    """Costs of the shape of a small model's on one core: a step's overhead, tokens, sequences
    (sampling) and KV read, with some noise."""

    def __init__(self, clock: Clock, block_count: int = 2048) -> None:
        super().__init__(
            block_count=block_count,
            context_tokens_max=8192,
            script=lambda request_id, position: (position * 7) % 90,
        )
        self._clock = clock
        self._random = random.Random(7)

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        tokens = sum(len(step.token_ids) for step in steps)
        read = sum(step.start for step in steps)
        products = sum(step.start * len(step.token_ids) for step in steps)
        cost_ms = 20.0 + 2.2 * tokens + 0.8 * len(steps) + 0.008 * read + 0.0005 * products
        self._clock.now_s += cost_ms / 1000 * self._random.lognormvariate(0.0, 0.05)
        outputs = super().execute(steps)
        self.steps.clear()
        return outputs


class Traffic:
    """Tenants on one engine: each asks whenever it has fewer than its number of requests open."""

    def __init__(self, limits: SchedulerLimits | None = None) -> None:
        self.clock = Clock()
        self.engine: Engine = make_engine(
            TimedRunner(self.clock), limits=limits or SchedulerLimits(), clock=self.clock
        )
        self.first_token_s: dict[bytes, list[float]] = {}
        self.tokens: dict[bytes, int] = {}
        self.between_s: dict[bytes, list[float]] = {}
        self._submitted_at_s: dict[str, float] = {}
        self._last_at_s: dict[str, float] = {}
        self._numbers = 0
        self._random = random.Random(3)

    def ask(
        self,
        key: bytes,
        *,
        prompt_tokens: int = 256,
        output_tokens: int = 32,
        priority: Priority = Priority.INTERACTIVE,
        weight: float = 1.0,
        came_at_s: float | None = None,
    ) -> str:
        """One more request of a tenant, with a prompt that nobody else has; it may have come while
        the last step was computed."""
        self._numbers += 1
        request_id = f"{key.decode()}-{self._numbers}"
        prompt = tuple(self._random.randrange(90) for _ in range(prompt_tokens))
        refusal = self.engine.submit(
            GenerationRequest(
                request_id,
                (prompt,),
                SamplingParams(max_tokens=output_tokens, temperature=0.0),
                priority=priority,
                fairness_key=key,
                fairness_weight=weight,
            )
        )
        assert refusal is None, refusal
        self._submitted_at_s[request_id] = self.clock.now_s if came_at_s is None else came_at_s
        return request_id

    def step(self) -> list[str]:
        """Computes one step; the requests that ended with it."""
        result = self.engine.step()
        now_s = self.clock.now_s
        for chunk in result.chunks:
            key = chunk.request_id.split("-")[0].encode()
            if chunk.counts.completion == 1:
                waited_s = now_s - self._submitted_at_s[chunk.request_id]
                self.first_token_s.setdefault(key, []).append(waited_s)
            else:
                between_s = now_s - self._last_at_s[chunk.request_id]
                self.between_s.setdefault(key, []).append(between_s)
            self._last_at_s[chunk.request_id] = now_s
            self.tokens[key] = self.tokens.get(key, 0) + 1
        for finish in result.finishes:
            assert finish.reason is FinishReason.LENGTH
        return [finish.request_id for finish in result.finishes]


def p95(values: Sequence[float]) -> float:
    """The value that 95 % do not exceed."""
    return sorted(values)[-1 - len(values) // 20]
