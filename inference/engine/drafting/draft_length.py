"""How many tokens to guess for each sequence: what guesses are likely to give against their cost.

Pure functions and values: from how often guesses were right and what steps of so many rows take on
this machine, the lengths that raise tokens per second most, 0 where none does. Used by
`Speculation`; never changes an answer.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inference.contracts import BLOCK_TOKENS
from inference.engine.step import Runner, SampleSpec, SequenceStep

DRAFTS_MAX = 7
"""Per sequence and step: eight rows fill the tiles of the int8 product on a CPU."""
GAIN_MIN = 1.03
"""The expected gain has to pay for finding and checking drafts, too."""
RIGHT_AT_FIRST, CHECKED_AT_FIRST = 1.0, 2.0
"""What a new sequence is credited with: as if so many of so many guesses had been right."""
KEPT_PER_CHECK = 0.8
"""Of the older evidence, at each check: about the last five count, so that the length follows a
text that begins or ceases to repeat itself."""
TRIAL_STEPS = 16
"""Steps without a check after which guesses are made on trial: compared with what comes anyway,
which finds out for next to nothing whether guessing would pay again."""
TRIAL_DRAFTS = 3
TRIAL_RATE = 0.9
"""No trials where not even guesses as good as this would pay."""

SINGLE_ROWS_MAX = 8
"""Costs up to here are measured row by row, above by doubling."""
ROWS_MAX = 512
SLOWDOWN_MAX = 4.0
"""Measuring ends where a step takes so many times what one row takes: compute-bound by then."""
MEASURED_TIMES = 2
"""Of each size; the quicker counts, since whatever disturbs a measurement makes it longer."""
CONTEXT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Seconds of a step by its rows, at ascending row counts, the first of them 1."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError unless it starts at one row and rises."""
        ascending = sorted(set(self.rows)) == list(self.rows) and min(self.seconds) > 0.0
        if len(self.rows) != len(self.seconds) or self.rows[0] != 1 or not ascending:
            raise ValueError("costs need ascending rows from 1, and positive seconds")

    def at(self, rows: int) -> float:
        """Interpolated; beyond what was measured each row costs what it does there on average."""
        above = bisect.bisect_left(self.rows, rows)
        if above == len(self.rows):
            return self.seconds[-1] * rows / self.rows[-1]
        if self.rows[above] == rows:
            return self.seconds[above]
        low, high = self.rows[above - 1], self.rows[above]
        part = (rows - low) / (high - low)
        return self.seconds[above - 1] * (1.0 - part) + self.seconds[above] * part


FREE = RowCosts((1,), (1e-12,))
"""A draft source that takes no time worth counting."""


@dataclass(slots=True)
class Acceptance:
    """How often the guesses for one sequence were right lately; a guess behind a wrong one was
    never put to the test. `trial` are guesses for the tokens from `trial_start` on."""

    right: float = RIGHT_AT_FIRST
    checked: float = CHECKED_AT_FIRST
    idle_steps: int = 0
    trial: list[int] = field(default_factory=list)
    trial_start: int = 0

    @property
    def rate(self) -> float:
        """The chance that the next guess is right, given that those before it are."""
        return self.right / self.checked

    @property
    def wants_trial(self) -> bool:
        """Whether the evidence is stale."""
        return self.idle_steps >= TRIAL_STEPS and not self.trial

    def note(self, drafted: int, accepted: int) -> None:
        """Takes the outcome of one check."""
        self.right = self.right * KEPT_PER_CHECK + accepted
        self.checked = self.checked * KEPT_PER_CHECK + min(drafted, accepted + 1)
        self.idle_steps = 0
        self.trial = []

    def pass_step(self, token_ids: Sequence[int]) -> None:
        """Counts a step, and ends a trial whose places are all known."""
        self.idle_steps += 1
        came = token_ids[self.trial_start : self.trial_start + len(self.trial)]
        if self.trial and len(came) == len(self.trial):
            agreeing = (ours == theirs for ours, theirs in zip(self.trial, came, strict=True))
            self.note(len(came), sum(itertools.takewhile(bool, agreeing)))


def expected_tokens(rate: float, drafts: int) -> float:
    """What `drafts` guesses add to a step on average: each counts if all up to it are right."""
    return sum(rate**ahead for ahead in range(1, drafts + 1))


def draft_lengths(
    rates: Sequence[float], room: Sequence[int], checking: RowCosts, drafting: RowCosts = FREE
) -> list[int]:
    """The number of drafts for each of the sequences of a step, the likeliest served first.

    `rates` are the chances of a guess, `room` how many may be made. A step checks one row per
    sequence and one per draft; before it, drafting takes a pass per draft over all that draft.
    """
    lengths = [0] * len(rates)
    rows = len(rates)
    tokens, passes, members = float(rows), 0, 0
    speed = tokens / checking.at(rows) if rows else 0.0
    for index in sorted(range(len(rates)), key=lambda i: -rates[i]):
        best, best_speed = 0, speed * GAIN_MIN
        for count in range(1, min(room[index], DRAFTS_MAX) + 1):
            seconds = checking.at(rows + count) + max(passes, count) * drafting.at(members + 1)
            more = (tokens + expected_tokens(rates[index], count)) / seconds
            if more > best_speed:
                best, best_speed = count, more
        if best == 0 and room[index] > 0:
            break
        if best:
            lengths[index] = best
            rows, members, passes = rows + best, members + 1, max(passes, best)
            tokens, speed = tokens + expected_tokens(rates[index], best), best_speed
    return lengths


def measure_costs(runner: Runner, clock: Callable[[], float]) -> RowCosts:
    """Times steps on an idle runner, whose first blocks it overwrites. `clock` returns monotonic
    seconds. For SmolLM2 on one CPU core that takes a second in int8, two in float32."""
    table = tuple(range(min(runner.block_count, CONTEXT_TOKENS // BLOCK_TOKENS)))
    rows: list[int] = []
    seconds: list[float] = []
    for count in _row_counts():
        if count + 1 > runner.context_tokens_max:
            break
        steps = _steps(count, table)
        times = []
        for _ in range(MEASURED_TIMES):
            began_s = clock()
            runner.execute(steps)
            times.append(clock() - began_s)
        rows.append(count)
        seconds.append(min(times))
        if seconds[-1] > SLOWDOWN_MAX * min(seconds):
            break
    # Fewer rows never take longer than more; where they seem to, something disturbed them.
    least = reversed(list(itertools.accumulate(reversed(seconds), min)))
    return RowCosts(tuple(rows), tuple(least))


def _row_counts() -> list[int]:
    counts = list(range(1, SINGLE_ROWS_MAX + 1))
    while counts[-1] < ROWS_MAX:
        counts.append(counts[-1] * 2)
    return counts


def _steps(rows: int, table: tuple[int, ...]) -> list[SequenceStep]:
    """One sequence that checks drafts, or above that several that check one draft each."""
    each = rows if rows <= SINGLE_ROWS_MAX else 2
    start = max(0, len(table) * BLOCK_TOKENS - each)
    # At a temperature a draw takes about 1 ms of a CPU, which each guess has to pay for.
    samples = (SampleSpec(temperature=1.0),) * each
    return [
        SequenceStep(f"timing/{n}", (n % 16,) * each, start, table, samples)
        for n in range(rows // each)
    ]
