"""A runner without weights whose output depends on every KV entry it reads.

Each position stores a digest of the tokens up to it, as real KV does; the drawn token is a function
of all stored digests. A block that is lost, shared wrongly, stale or not computed therefore changes
the output, and `expected_output` says what it must be.
"""

from collections.abc import Callable, Sequence

from inference.contracts import BLOCK_TOKENS
from inference.engine.step import Drawn, SampleSpec, SequenceStep, StepOutput


class StubRunner:
    """Deterministic stand-in for the model; `script` maps a request id to forced tokens."""

    def __init__(
        self,
        block_count: int = 64,
        vocab_size: int = 100,
        context_tokens_max: int = 512,
        script: Callable[[str, int], int | None] = lambda _request_id, _position: None,
    ) -> None:
        self.block_count = block_count
        self.vocab_size = vocab_size
        self.hidden_size = 2
        self.context_tokens_max = context_tokens_max
        self.cache_key = b"stub"
        self.device = "stub"
        self.script = script
        self.steps: list[list[SequenceStep]] = []
        self.fail_next = False
        self._kv: list[list[int]] = [[0] * BLOCK_TOKENS for _ in range(block_count)]

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("stub failure")
        self.steps.append(list(steps))
        return [self._execute_one(step) for step in steps]

    def _execute_one(self, step: SequenceStep) -> StepOutput:
        end = step.start + len(step.token_ids)
        for position, token_id in enumerate(step.token_ids, start=step.start):
            previous = self._read(step, position - 1) if position else 0
            block = step.block_table[position // BLOCK_TOKENS]
            self._kv[block][position % BLOCK_TOKENS] = _mix(previous, token_id)
        samples = step.samples
        return StepOutput(
            drawn=tuple(
                Drawn(self._draw_after(step, end - len(samples) + index + 1, spec))
                for index, spec in enumerate(samples)
            ),
            pooled=(float(sum(step.token_ids)), float(len(step.token_ids))) if step.pool else (),
        )

    def _draw_after(self, step: SequenceStep, known: int, spec: SampleSpec) -> int:
        request_id, _, choice = step.sequence_id.rpartition("/")
        forced = self.script(request_id, spec.position)
        if forced is not None:
            return forced
        states = [self._read(step, position) for position in range(known)]
        return (_draw(states, self.vocab_size) + int(choice)) % self.vocab_size

    def _read(self, step: SequenceStep, position: int) -> int:
        return self._kv[step.block_table[position // BLOCK_TOKENS]][position % BLOCK_TOKENS]


class Letters:
    """Token bytes for the stub: token t is the letter t mod 26, so that all text is plain."""

    def of(self, token_id: int) -> bytes:
        return bytes([ord("a") + token_id % 26])


class ByteTokens:
    """Token bytes for scripted outputs: token t (below 256) is the byte t."""

    def of(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""


def expected_output(
    prompt_ids: Sequence[int], count: int, vocab_size: int = 100, choice: int = 0
) -> list[int]:
    """What the stub draws for a prompt alone, with nothing cached and nothing preempted."""
    states: list[int] = []
    for token_id in prompt_ids:
        states.append(_mix(states[-1] if states else 0, token_id))
    output: list[int] = []
    for _ in range(count):
        output.append((_draw(states, vocab_size) + choice) % vocab_size)
        states.append(_mix(states[-1], output[-1]))
    return output


def _mix(state: int, token_id: int) -> int:
    return (state * 6364136223846793005 + token_id * 1442695040888963407 + 1) % (1 << 61)


def _draw(states: Sequence[int], vocab_size: int) -> int:
    total = 0
    for position, state in enumerate(states):
        total = (total * 31 + state + position) % (1 << 61)
    return total % vocab_size
