"""Time to the first token of a prompt whose first 1,500 tokens another request has computed.

`python -m benchmarks.prefix_ttft` measures the same engine cold (a prefix never seen) and warm (the
prefix of the cold request, another question after it).
"""

import random
import statistics
import time

from benchmarks.engine_decode import THREADS, new_engine
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report
from inference.contracts import GenerationRequest, SamplingParams
from inference.engine.engine import Engine

PREFIX_TOKENS = 1500
QUESTION_TOKENS = 20
ROUNDS = 3


def first_token_s(engine: Engine, request_id: str, prompt_ids: list[int]) -> tuple[float, int]:
    """(seconds from submission to the first token, prompt tokens found in the cache)."""
    began = time.perf_counter()
    refusal = engine.submit(
        GenerationRequest(
            request_id=request_id,
            prompt_ids=tuple(prompt_ids),
            sampling=SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True),
        )
    )
    assert refusal is None, refusal
    while True:
        result = engine.step()
        if result.chunks:
            return time.perf_counter() - began, result.chunks[0].counts.cached


def main() -> None:
    """Prints the table."""
    engine = new_engine(loaded_bundle(), pool_tokens=16_384)
    drawn = random.Random(2)
    vocabulary = range(17, engine.limits.vocab_size)
    cold: list[float] = []
    warm: list[float] = []
    for index in range(ROUNDS):
        prefix = drawn.choices(vocabulary, k=PREFIX_TOKENS)
        first = prefix + drawn.choices(vocabulary, k=QUESTION_TOKENS)
        second = prefix + drawn.choices(vocabulary, k=QUESTION_TOKENS)
        seconds, cached = first_token_s(engine, f"cold-{index}", first)
        assert cached == 0
        cold.append(seconds)
        seconds, cached = first_token_s(engine, f"warm-{index}", second)
        assert cached > PREFIX_TOKENS - 16
        warm.append(seconds)
    rows = [
        Row("warm", statistics.median(warm), "cold", statistics.median(cold), "s", "<= 0.2"),
    ]
    print_report("Time to first token behind a 1,500-token prefix", rows, threads=THREADS)


if __name__ == "__main__":
    main()
