"""Drafts by a small model of the same vocabulary, in a pool of its own.

It draws with the noise that the large model will use at the same position, so that two models which
agree also draw the same at any temperature. Keeps KV per sequence between steps and takes back what
turned out wrong; where its pool has no room there are no drafts. Used by `Speculation`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inference.engine.drawing import sample_specs
from inference.engine.scheduling.block_pool import BlockPool
from inference.engine.sequence import SequenceState, blocks_for
from inference.engine.step import Runner, SequenceStep

CATCH_UP_TOKENS_MAX = 256
"""Known tokens that the draft model reads per step before it can guess; a long prompt takes it
several, in which the large model decodes without guesses."""


class VocabulariesDiffer(ValueError):
    """The draft model's tokens are not those of the model it guesses for."""


@dataclass(slots=True)
class _Kept:
    """KV of one sequence: of its first `known` tokens, and behind them of `guessed` ones."""

    blocks: list[int] = field(default_factory=list)
    known: int = 0
    guessed: list[int] = field(default_factory=list)

    def take_back(self, token_ids: Sequence[int]) -> None:
        """Keeps the guesses that came true, and never the last token: its successor is wanted."""
        for token_id in self.guessed:
            if self.known == len(token_ids) or token_ids[self.known] != token_id:
                break
            self.known += 1
        self.guessed = []
        self.known = min(self.known, len(token_ids) - 1)


class DraftModel:
    """A `DraftSource` over a runner of its own. Raises VocabulariesDiffer."""

    def __init__(self, runner: Runner, *, vocab_size: int, end_ids: Collection[int]) -> None:
        if runner.vocab_size != vocab_size:
            raise VocabulariesDiffer(
                f"the draft model has {runner.vocab_size} tokens, not {vocab_size}"
            )
        self._runner = runner
        self._end_ids = frozenset(end_ids)
        self._pool = BlockPool(runner.block_count)
        self._kept: dict[SequenceState, _Kept] = {}

    def propose(self, wanted: Sequence[tuple[SequenceState, int]]) -> None:
        """Fills `drafts` of each sequence that has room and has been read, pass by pass."""
        counts = dict(wanted)
        steps = self._first_steps(counts)
        while steps:
            outputs = self._runner.execute(list(steps.values()))
            drawing = []
            for state, output in zip(steps, outputs, strict=True):
                state.drafts += [drawn.token_id for drawn in output.drawn]
                if output.drawn and len(state.drafts) < self._reach(state, counts[state]):
                    drawing.append(state)
            steps = {s: self._next_step(s) for s in drawing if s.drafts[-1] not in self._end_ids}

    def forget(self, state: SequenceState) -> None:
        """Gives the blocks of a sequence back."""
        kept = self._kept.pop(state, None)
        if kept is not None:
            self._pool.release(kept.blocks)

    @property
    def blocks_used(self) -> int:
        """Blocks of its pool that hold something of a sequence."""
        return self._pool.used

    def check(self) -> None:
        """Asserts the invariants of its pool, and that its blocks are its sequences'."""
        self._pool.check()
        assert self._pool.used == sum(len(kept.blocks) for kept in self._kept.values())

    def _first_steps(
        self, counts: Mapping[SequenceState, int]
    ) -> dict[SequenceState, SequenceStep]:
        """Reads what is known and not read yet; sequences that are read to their end draw."""
        steps = {}
        budget = CATCH_UP_TOKENS_MAX
        for state, count in counts.items():
            kept = self._kept.setdefault(state, _Kept())
            kept.take_back(state.token_ids)
            reach = self._reach(state, count)
            if budget == 0 or reach < 1 or not self._make_room(kept, state, reach, counts):
                continue
            start = kept.known
            chunk = state.token_ids[start : start + budget]
            budget -= len(chunk)
            kept.known += len(chunk)
            draws = kept.known == len(state.token_ids)
            steps[state] = self._step(state, chunk, start, draws=draws)
        return steps

    def _reach(self, state: SequenceState, count: int) -> int:
        """How many drafts fit the draft model's context, which may be the shorter one."""
        return min(count, self._runner.context_tokens_max - len(state.token_ids))

    def _make_room(
        self, kept: _Kept, state: SequenceState, count: int, asking: Collection[SequenceState]
    ) -> bool:
        """Blocks for all known tokens and the guesses that are read, if need be from sequences
        that are not asking now: they would have to start over only if they came back."""
        missing = blocks_for(len(state.token_ids) + count - 1) - len(kept.blocks)
        if missing > self._pool.available:
            for other in [s for s in self._kept if s not in asking]:
                self.forget(other)
        if missing > self._pool.available:
            return False
        if missing > 0:
            kept.blocks += self._pool.allocate(missing)
        return True

    def _next_step(self, state: SequenceState) -> SequenceStep:
        kept = self._kept[state]
        kept.guessed.append(state.drafts[-1])
        start = kept.known + len(kept.guessed) - 1
        return self._step(state, kept.guessed[-1:], start, draws=True)

    def _step(
        self, state: SequenceState, token_ids: Sequence[int], start: int, *, draws: bool
    ) -> SequenceStep:
        blocks = self._kept[state].blocks
        if not draws:
            return SequenceStep(state.sequence_id, token_ids, start, blocks)
        drafts = len(state.drafts)
        spec = sample_specs(state, drafts, self._end_ids, constrained=False)[-1]
        samples = (replace(spec, logprobs=None),)
        return SequenceStep(state.sequence_id, token_ids, start, blocks, samples)
