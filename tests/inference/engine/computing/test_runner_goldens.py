"""Greedy answers are those of the transformers reference, in whatever steps they are computed."""

from collections.abc import Sequence

import pytest

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.runner import load_runner
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle
from tests.inference.conftest import Golden
from tests.inference.engine.computing.decoding import Decoding, advance, decode, scattered_blocks

POOL_TOKENS = 16_384
BLOCKS_EACH = 25
ALONE = ("What is the capital of France?", "Write a haiku about the sea.", "What is 17 + 25?")
"""Enough to differ in length; all twenty run in a batch."""


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner:
    return load_runner(
        bundle, pool_tokens=POOL_TOKENS, threads=1, device="cpu", weight_format="float32"
    )


def started(goldens: Sequence[Golden]) -> list[Decoding]:
    return [
        Decoding(
            uncomputed=list(golden.prompt_ids),
            blocks=scattered_blocks(index, BLOCKS_EACH, len(goldens)),
            limit=len(golden.output_ids),
        )
        for index, golden in enumerate(goldens)
    ]


def disagreeing(goldens: Sequence[Golden], decodings: Sequence[Decoding]) -> list[str]:
    return [
        golden.prompt
        for golden, decoding in zip(goldens, decodings, strict=True)
        if not golden.agrees(decoding.output)
    ]


@pytest.mark.parametrize("prompt", ALONE)
def test_a_prompt_alone(runner: Runner, goldens: list[Golden], prompt: str) -> None:
    chosen = [golden for golden in goldens if golden.prompt == prompt]
    decodings = started(chosen)

    decode(runner, decodings)

    assert len(chosen) == 1
    assert disagreeing(chosen, decodings) == []


def test_all_prompts_in_one_batch(runner: Runner, goldens: list[Golden]) -> None:
    decodings = started(goldens)

    decode(runner, decodings)

    assert disagreeing(goldens, decodings) == []


def test_prompts_computed_in_chunks(runner: Runner, goldens: list[Golden]) -> None:
    decodings = started(goldens)

    decode(runner, decodings, chunk_tokens=7)

    assert disagreeing(goldens, decodings) == []


def test_prompts_that_start_on_blocks_another_request_filled(
    runner: Runner, goldens: list[Golden]
) -> None:
    cold = started(goldens[:16])
    for decoding in cold:
        decoding.limit = 1
    decode(runner, cold)
    warm = started(goldens[:16])
    for index, (first, second) in enumerate(zip(cold, warm, strict=True)):
        shared = (len(second.uncomputed) - 1) // BLOCK_TOKENS
        fresh = scattered_blocks(index + 16 * BLOCKS_EACH, BLOCKS_EACH - shared, 16)
        second.blocks = first.blocks[:shared] + fresh
        second.computed = shared * BLOCK_TOKENS
        del second.uncomputed[: second.computed]

    decode(runner, warm)

    assert disagreeing(goldens[:16], warm) == []


def test_decode_beside_a_prefill(runner: Runner, goldens: list[Golden]) -> None:
    early, late = started(goldens[:8]), started(goldens)[8:16]
    for _ in range(3):
        advance(runner, early)
    for index, decoding in enumerate(late):
        decoding.blocks = scattered_blocks(index + 8 * BLOCKS_EACH, BLOCKS_EACH, 8)

    decode(runner, [*early, *late], chunk_tokens=5)

    assert disagreeing(goldens[:16], [*early, *late]) == []
