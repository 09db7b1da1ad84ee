"""SmolLM2 in eight bits where caches are known to have changed answers: full pools, reused blocks,
neighbours that stopped early. In this format a row's bits do not depend on its company."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from inference.contracts import BLOCK_TOKENS, Chunk, GenerationRequest, SamplingParams, TokenLogprob
from inference.engine.computing.runner import load_runner
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner, SequenceStep, StepOutput
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.conftest import Golden
from tests.inference.engine.driving import Clock

POOL_TOKENS = 1024
GREEDY = SamplingParams(max_tokens=14, temperature=0.0, ignore_eos=True, logprobs=1)
Said = tuple[tuple[int, ...], tuple[TokenLogprob, ...]]
"""Token ids and their log probabilities, to the last bit."""


class TokenByToken:
    """A runner with only the first of its blocks in use, which others have filled before. Each
    token is computed by itself, so that its bits depend neither on its company nor on where a
    prompt was cut."""

    def __init__(self, runner: Runner, block_count: int) -> None:
        self.block_count = block_count
        self.vocab_size = runner.vocab_size
        self.hidden_size = runner.hidden_size
        self.context_tokens_max = runner.context_tokens_max
        self.cache_key = runner.cache_key
        self.device = runner.device
        self._runner = runner

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        outputs = [StepOutput()] * len(steps)
        for index in range(max(len(step.token_ids) for step in steps)):
            going = [n for n, step in enumerate(steps) if index < len(step.token_ids)]
            parts = [_token_of(steps[n], index) for n in going]
            for n, output in zip(going, self._runner.execute(parts), strict=True):
                outputs[n] = output
        return outputs


def _token_of(step: SequenceStep, index: int) -> SequenceStep:
    is_last = index + 1 == len(step.token_ids)
    return replace(
        step,
        token_ids=step.token_ids[index : index + 1],
        start=step.start + index,
        block_table=step.block_table[: (step.start + index) // BLOCK_TOKENS + 1],
        samples=step.samples if is_last else (),
    )


@dataclass(frozen=True)
class House:
    """The loaded model; each engine made of it has an empty prefix cache."""

    runner: Runner
    texts: TokenBytes

    def engine(self, block_count: int | None = None) -> Engine:
        runner = TokenByToken(self.runner, block_count or self.runner.block_count)
        limits = SchedulerLimits(running_max=16)
        return Engine(runner, self.texts, stop_ids=(), limits=limits, clock=Clock())


@pytest.fixture(scope="module")
def house(bundle: Bundle) -> House:
    runner = load_runner(
        bundle,
        pool_tokens=POOL_TOKENS,
        threads=1,
        device="cpu",
        weight_format="int8",
        kv_format="int8",
    )
    return House(runner, TokenBytes(bundle))


def ask(
    engine: Engine, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams = GREEDY
) -> tuple[list[Said], int]:
    """All prompts at once: what each is answered, and the most blocks used after a step."""
    for index, prompt in enumerate(prompts):
        assert engine.submit(GenerationRequest(f"r{index}", (prompt,), sampling)) is None
    chunks: list[Chunk] = []
    used = 0
    while engine.has_work:
        chunks += engine.step().chunks
        engine.check()
        used = max(used, engine.stats().blocks_used)
    said = []
    for index in range(len(prompts)):
        own = [chunk for chunk in chunks if chunk.request_id == f"r{index}"]
        ids = tuple(token for chunk in own for token in chunk.token_ids)
        said.append((ids, tuple(entry for chunk in own for entry in chunk.logprobs)))
    return said, used


def test_scales_move_and_go_with_their_blocks_when_the_pool_is_full(
    house: House, goldens: list[Golden]
) -> None:
    shared = goldens[1].prompt_ids[-BLOCK_TOKENS:]
    prompts = [shared + golden.prompt_ids[-n:] for n, golden in enumerate(goldens[2:5], start=4)]
    alone = [ask(house.engine(), [prompt])[0][0] for prompt in prompts]
    engine = house.engine(block_count=5)

    cold, used = ask(engine, prompts)
    # Another text takes all of the blocks over before the first ones come back.
    ask(engine, [goldens[7].prompt_ids[: 5 * BLOCK_TOKENS - 1]], replace(GREEDY, max_tokens=1))
    warm, _ = ask(engine, prompts)

    assert cold == alone
    assert warm == alone
    assert used == 5
    assert engine.stats().preemptions > 0
    assert engine.stats().prompt_tokens_cached > 0


def test_the_cache_answers_to_the_last_bit_after_a_batch_that_ended_at_stop_strings(
    house: House, goldens: list[Golden]
) -> None:
    """Prompts of one token more than whole blocks, of whole blocks, and of one less."""
    lengths = (2 * BLOCK_TOKENS + 1, 2 * BLOCK_TOKENS, 2 * BLOCK_TOKENS - 1)
    prompts = [g.prompt_ids[:n] for g, n in zip(goldens[:3], lengths, strict=True)]
    cold = [ask(house.engine(), [prompt])[0][0] for prompt in prompts]
    engine = house.engine()
    stopped, _ = ask(engine, prompts, replace(GREEDY, stop=("e", "a", "i", "o")))

    warm, _ = ask(engine, prompts)

    assert warm == cold
    assert all(len(ids) < GREEDY.max_tokens for ids, _ in stopped)
    assert engine.stats().prompt_tokens_cached == (2 + 1 + 1) * BLOCK_TOKENS
