"""Time to the first token of a prompt whose first 1,500 tokens another request has computed.

`python -m benchmarks.prefix_ttft` measures the same engine cold (a prefix never seen) and warm (the
prefix of the cold request, another question after it).
"""

import random
import statistics

from benchmarks.in_process import (
    THREADS,
    WatchedEngine,
    greedy,
    load,
    random_prompt,
    watched_engine,
)
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report

PREFIX_TOKENS = 1500
QUESTION_TOKENS = 20
ROUNDS = 3


def first_token_s(
    watched: WatchedEngine, request_id: str, prompt_ids: tuple[int, ...]
) -> tuple[float, int]:
    """(processor seconds to the first token, prompt tokens found in the cache)."""
    before = watched.engine.stats().prompt_tokens_cached
    watched.submit(request_id, prompt_ids, greedy(1))
    watched.drain()
    cached = watched.engine.stats().prompt_tokens_cached - before
    return watched.watches[request_id].first_token_s, cached


def main() -> None:
    """Prints the table."""
    bundle = loaded_bundle()
    watched = watched_engine(bundle, load(bundle))
    drawn = random.Random(2)
    cold: list[float] = []
    warm: list[float] = []
    for index in range(ROUNDS):
        prefix = random_prompt(drawn, PREFIX_TOKENS, bundle.vocab_size)
        first = prefix + random_prompt(drawn, QUESTION_TOKENS, bundle.vocab_size)
        second = prefix + random_prompt(drawn, QUESTION_TOKENS, bundle.vocab_size)
        seconds, cached = first_token_s(watched, f"cold-{index}", first)
        assert cached == 0
        cold.append(seconds)
        seconds, cached = first_token_s(watched, f"warm-{index}", second)
        assert cached > PREFIX_TOKENS - 16
        warm.append(seconds)
    rows = [
        Row("warm", statistics.median(warm), "cold", statistics.median(cold), "s", "<= 0.2"),
    ]
    print_report("Time to first token behind a 1,500-token prefix", rows, threads=THREADS)


if __name__ == "__main__":
    main()
