"""A runner without weights whose steps take a modelled time: for scheduling at scale, alone.

Draws the same token always. Time is its own clock, which only its steps move. Benchmarks that ask
what scheduling does, and not what computing costs, run the real engine over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inference.engine.step import Drawn, SequenceStep, StepOutput

VOCAB_SIZE = 50_000


@dataclass(frozen=True, slots=True)
class StepTime:
    """A roofline: the larger of reading the weights and computing the tokens, plus reading KV."""

    weights_s: float = 0.0
    token_s: float = 0.0
    context_token_s: float = 0.0

    def of(self, steps: Sequence[SequenceStep]) -> float:
        """Seconds of a step."""
        tokens = sum(len(step.token_ids) for step in steps)
        context = sum(step.start + len(step.token_ids) for step in steps)
        return max(self.weights_s, tokens * self.token_s) + context * self.context_token_s


H200_8B = StepTime(weights_s=16e9 / 4.8e12, token_s=16e9 / 600e12, context_token_s=131e3 / 4.8e12)
"""8 billion parameters in bfloat16 with 131 KB of KV per token, at 4.8 TB/s and 600 TFLOP/s."""


A100_13B = StepTime(
    weights_s=26e9 / 1.55e12, token_s=26e9 / 190e12, context_token_s=819e3 / 1.55e12
)
"""13 billion parameters in float16 with 819 KB of KV per token, at 1.55 TB/s and 190 TFLOP/s."""


class ModelledClock:
    """Seconds that steps have taken."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds by this clock."""
        return self.now_s

    def skip_to(self, at_s: float) -> None:
        """Lets time pass in which nothing is computed."""
        self.now_s = max(self.now_s, at_s)


class ModelledRunner:
    """Computes nothing and draws token 17."""

    vocab_size = VOCAB_SIZE
    context_tokens_max = 8192
    hidden_size = 4096
    cache_key = b"modelled"
    device = "none"

    def __init__(self, block_count: int, step_time: StepTime | None = None) -> None:
        self.block_count = block_count
        self.clock = ModelledClock()
        self._step_time = step_time or StepTime()

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        """One drawn token per sample."""
        self.clock.now_s += self._step_time.of(steps)
        return [StepOutput(tuple(Drawn(17) for _ in step.samples)) for step in steps]


class NoTexts:
    """Token bytes for it: one letter."""

    def of(self, token_id: int) -> bytes:
        """The same for every token."""
        return b"a"
