"""N-gram speculation: on text that repeats itself, on text that does not, and in a full batch.

`python -m benchmarks.speculation` decodes the same requests with and without a drafter, over one
runner, in alternating rounds, of which the quickest counts. Repetitive: a paragraph and records,
copied greedily. Not repetitive: stories sampled at temperature 1 with fixed seeds. In int8 on a CPU
the answers of both sides are equal to the bit.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.in_process import THREADS, WatchedEngine, load, watched_engine
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report
from inference.contracts import SamplingParams
from inference.engine.drafting.draft_length import measure_costs
from inference.engine.drafting.ngram_drafts import NgramDrafts
from inference.engine.drafting.speculation import Speculation
from inference.tokenizer.prompt import ChatMessage, PromptEncoder

ROUNDS = 3
NEW_TOKENS = 128
RECORDS = "\n".join(
    f'{{"id": {index}, "name": "mill {index}", "state": "open", "kind": "water"}}'
    for index in range(1, 7)
)
PARAGRAPH = (
    "The harbor of Lindale was built in 1874 by a company of stone masons from the north. It has "
    "two piers, a lighthouse with a red lamp, and a market hall where fishermen sell their catch "
    "every morning before six."
)
REPETITIVE = (
    f"Repeat these lines exactly, then repeat them again:\n{RECORDS}",
    f"Repeat the following text exactly:\n\n{PARAGRAPH}",
)
STORIES = (
    "Tell me about a town that nobody has heard of.",
    "Explain in your own words why ships float.",
)


STREAMS = 16


@dataclass(frozen=True)
class Case:
    """Texts answered one after the other, or all at once; `wanted` of the ratio of speeds."""

    name: str
    texts: Sequence[str]
    temperature: float
    at_once: bool
    new_tokens: int
    wanted: str


CASES = (
    Case("text that repeats", REPETITIVE, 0.0, False, NEW_TOKENS, ">= 1.5"),
    Case("text that does not", STORIES, 1.0, False, NEW_TOKENS, ">= 0.97"),
    Case(f"{STREAMS} that do not", STORIES * (STREAMS // 2), 1.0, True, 48, ">= 0.97"),
)


@dataclass
class Outcome:
    """The quickest of some rounds."""

    tokens_per_s: float = 0.0
    answers: tuple[tuple[int, ...], ...] = ()
    accepted: int = 0
    drafted: int = 0


def measure(case: Case, outcome: Outcome, watched: WatchedEngine, encoder: PromptEncoder) -> None:
    """One round: tokens of all answers over the time between their first tokens and their last."""
    seconds = 0.0
    for index, text in enumerate(case.texts):
        prompt = encoder.encode_chat([ChatMessage("user", text)])
        sampling = SamplingParams(
            max_tokens=case.new_tokens, temperature=case.temperature, seed=index
        )
        watched.submit(str(index), prompt, sampling)
        if not case.at_once:
            watched.drain()
            times = watched.watches[str(index)].token_at_s
            seconds += times[-1] - times[0]
    watches = list(watched.watches.values())
    if case.at_once:
        watched.drain()
        firsts, lasts = zip(*((w.token_at_s[0], w.token_at_s[-1]) for w in watches), strict=True)
        seconds = max(lasts) - max(firsts)
    tokens = sum(len(watch.token_at_s) - 1 for watch in watches)
    stats = watched.engine.stats()
    outcome.tokens_per_s = max(outcome.tokens_per_s, tokens / seconds)
    outcome.answers = tuple(tuple(watch.token_ids) for watch in watches)
    outcome.accepted, outcome.drafted = stats.accepted_tokens, stats.drafted_tokens


def rows_of(case: Case, with_: Outcome, without: Outcome) -> list[Row]:
    """The ratio of speeds, and what it comes from."""
    equal = sum(ours == plain for ours, plain in zip(with_.answers, without.answers, strict=True))
    speeds = (with_.tokens_per_s, "without speculation", without.tokens_per_s)
    return [
        Row(case.name, *speeds, "tokens/s", case.wanted),
        Row("  equal answers", equal, "answers", len(case.texts), "", ">= 1"),
        Row("  drafts that were right", with_.accepted, "drafts", max(with_.drafted, 1), "", ""),
    ]


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    runner, encoder = load(bundle), PromptEncoder(bundle)
    costs = measure_costs(runner, time.process_time)
    rows: list[Row] = []
    for case in CASES:
        with_, without = Outcome(), Outcome()
        for _ in range(ROUNDS):
            measure(case, without, watched_engine(bundle, runner), encoder)
            drafter = Speculation(NgramDrafts(), end_ids=bundle.stop_ids, checking=costs)
            measure(case, with_, watched_engine(bundle, runner, drafter=drafter), encoder)
        rows += rows_of(case, with_, without)
    print_report("Speculation by n-grams, int8, processor time", rows, threads=THREADS)


if __name__ == "__main__":
    main()
