"""N-gram speculation at one stream: on text that repeats itself, and on text that does not.

`python -m benchmarks.speculation` decodes the same requests with and without a drafter, over one
runner, in alternating rounds. Repetitive: records copied greedily. Not repetitive: stories sampled
at temperature 1 with fixed seeds, which gives the same tokens on both sides.
"""

import statistics
import time

from benchmarks.in_process import THREADS, WatchedEngine, load, watched_engine
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report
from inference.contracts import SamplingParams
from inference.engine.draft_length import measure_costs
from inference.engine.ngram_drafts import NgramDrafts
from inference.engine.speculation import Speculation
from inference.tokenizer.prompt import ChatMessage, PromptEncoder

ROUNDS = 2
NEW_TOKENS = 128
RECORDS = "\n".join(
    f'{{"id": {index}, "name": "mill {index}", "state": "open", "kind": "water"}}'
    for index in range(1, 7)
)
REPETITIVE = (
    f"Repeat these lines exactly, then repeat them again:\n{RECORDS}",
    f"Copy this list five times:\n{RECORDS}",
)
STORIES = (
    "Tell me about a town that nobody has heard of.",
    "Explain in your own words why ships float.",
)


def decode_tokens_per_s(watched: WatchedEngine) -> float:
    """Of the requests so far, from each one's first token to its last."""
    watches = watched.watches.values()
    tokens = sum(len(watch.token_at_s) - 1 for watch in watches)
    return tokens / sum(watch.token_at_s[-1] - watch.token_at_s[0] for watch in watches)


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    runner, encoder = load(bundle), PromptEncoder(bundle)
    costs = measure_costs(runner, time.process_time)
    rows: list[Row] = []
    for name, texts, temperature, wanted in (
        ("text that repeats", REPETITIVE, 0.0, ">= 1.5"),
        ("text that does not", STORIES, 1.0, ">= 0.97"),
    ):
        prompts = [encoder.encode_chat([ChatMessage("user", text)]) for text in texts]
        speeds: dict[bool, list[float]] = {True: [], False: []}
        answers: dict[bool, list[tuple[int, ...]]] = {}
        accepted, drafted = 0, 0
        for _ in range(ROUNDS):
            for guessing in (False, True):
                drafter = (
                    Speculation(NgramDrafts(), end_ids=bundle.stop_ids, checking=costs)
                    if guessing
                    else None
                )
                watched = watched_engine(bundle, runner, drafter=drafter)
                for index, prompt in enumerate(prompts):
                    sampling = SamplingParams(
                        max_tokens=NEW_TOKENS, temperature=temperature, seed=index, ignore_eos=True
                    )
                    watched.submit(str(index), prompt, sampling)
                    watched.drain()
                speeds[guessing].append(decode_tokens_per_s(watched))
                answers[guessing] = [tuple(w.token_ids) for w in watched.watches.values()]
                stats = watched.engine.stats()
                accepted, drafted = accepted + stats.accepted_tokens, drafted + stats.drafted_tokens
        with_, without = (statistics.median(speeds[guessing]) for guessing in (True, False))
        rows.append(Row(name, with_, "without speculation", without, "tokens/s", wanted))
        same = sum(ours == plain for ours, plain in zip(*answers.values(), strict=True))
        rows.append(Row("  equal answers", same, "answers", len(prompts), "", ">= 1"))
        rows.append(Row("  drafts that were right", accepted, "drafts", max(drafted, 1), "", ""))
    print_report("Speculation by n-grams, one stream, processor time", rows, threads=THREADS)


if __name__ == "__main__":
    main()
