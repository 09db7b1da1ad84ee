"""Drives a runner by hand: block tables without a scheduler, any mixture of prompts per step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from inference.contracts import BLOCK_TOKENS
from inference.engine.step import Runner, SampleSpec, SequenceStep, StepOutput

GREEDY = SampleSpec(temperature=0.0)


@dataclass
class Decoding:
    """One sequence on its way: `uncomputed` tokens go into the next step, then one at a time."""

    uncomputed: list[int]
    blocks: list[int]
    limit: int
    spec: SampleSpec = GREEDY
    computed: int = 0
    output: list[int] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.output) >= self.limit

    def step(self, tokens_max: int) -> SequenceStep:
        """The next share of at most `tokens_max` tokens."""
        share = self.uncomputed[:tokens_max]
        whole = len(share) == len(self.uncomputed)
        return SequenceStep(
            sequence_id=str(self.blocks[0]),
            token_ids=share,
            start=self.computed,
            block_table=self.blocks[: -(-(self.computed + len(share)) // BLOCK_TOKENS)],
            samples=(replace(self.spec, position=len(self.output)),) if whole else (),
        )

    def take(self, step: SequenceStep, output: StepOutput) -> None:
        """Advance by what `step` computed."""
        assert len(output.drawn) == len(step.samples)
        self.computed += len(step.token_ids)
        del self.uncomputed[: len(step.token_ids)]
        for drawn in output.drawn:
            self.output.append(drawn.token_id)
            self.uncomputed.append(drawn.token_id)


def decode(runner: Runner, decodings: Sequence[Decoding], chunk_tokens: int = 4096) -> None:
    """Runs all of them together until each has as many tokens as it wants."""
    while running := [decoding for decoding in decodings if not decoding.done]:
        advance(runner, running, chunk_tokens)


def advance(runner: Runner, decodings: Sequence[Decoding], chunk_tokens: int = 4096) -> None:
    """One step of all of them."""
    steps = [decoding.step(chunk_tokens) for decoding in decodings]
    for decoding, step, output in zip(decodings, steps, runner.execute(steps), strict=True):
        decoding.take(step, output)


def scattered_blocks(index: int, count: int, stride: int) -> list[int]:
    """`count` block ids for sequence `index` of `stride`, nowhere adjacent to each other."""
    return [index + stride * position for position in range(count)]
