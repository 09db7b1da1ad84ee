"""With batch invariance an answer is the same to the bit, in any company and however it is cut."""

from collections.abc import Sequence

import pytest

from inference.contracts import GenerationRequest, SamplingParams, TokenLogprob
from inference.engine.computing.runner import load_runner
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.conftest import Golden
from tests.inference.engine.driving import Clock


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner:
    return load_runner(
        bundle,
        pool_tokens=4096,
        threads=1,
        device="cpu",
        weight_format="int8",
        kv_format="int8",
        batch_invariant=True,
    )


def logprobs(
    runner: Runner,
    bundle: Bundle,
    prompts: Sequence[Sequence[int]],
    *,
    step_tokens_max: int,
    salt: bytes,
) -> list[TokenLogprob]:
    """Of the first prompt's answer, computed beside the others."""
    engine = Engine(
        runner,
        TokenBytes(bundle),
        stop_ids=bundle.stop_ids,
        limits=SchedulerLimits(step_tokens_max=step_tokens_max, running_max=8),
        clock=Clock(),
    )
    sampling = SamplingParams(max_tokens=6, temperature=0.0, logprobs=3, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        request = GenerationRequest(f"r{index}", (tuple(prompt),), sampling, cache_salt=salt)
        assert engine.submit(request) is None
    found: list[TokenLogprob] = []
    while engine.has_work:
        for chunk in engine.step().chunks:
            if chunk.request_id == "r0":
                found += chunk.logprobs
    return found


def test_company_and_cuts_change_no_bit(
    runner: Runner, bundle: Bundle, goldens: list[Golden]
) -> None:
    prompts = [golden.prompt_ids + goldens[0].prompt_ids for golden in goldens[:5]]

    alone = logprobs(runner, bundle, prompts[:1], step_tokens_max=256, salt=b"alone")
    crowded = logprobs(runner, bundle, prompts, step_tokens_max=19, salt=b"crowd")
    warm = logprobs(runner, bundle, prompts[:2], step_tokens_max=256, salt=b"alone")

    assert alone == crowded
    assert alone == warm


def test_formats_that_round_by_company_are_refused(bundle: Bundle) -> None:
    with pytest.raises(ValueError, match="batch-invariant"):
        load_runner(
            bundle,
            pool_tokens=256,
            threads=1,
            device="cpu",
            weight_format="float32",
            batch_invariant=True,
        )


@pytest.fixture(scope="module")
def default_runner(bundle: Bundle) -> Runner:
    return load_runner(bundle, pool_tokens=1024, threads=1, device="cpu")


@pytest.mark.parametrize("tokens", [17, 24, 31, 33, 40, 48])
def test_a_prompt_gets_from_the_cache_the_bits_it_got_without(
    default_runner: Runner, bundle: Bundle, goldens: list[Golden], tokens: int
) -> None:
    prompt = (goldens[0].prompt_ids + goldens[1].prompt_ids)[:tokens]

    cold, warm = both(default_runner, bundle, prompt)

    assert cold == warm


def both(
    runner: Runner, bundle: Bundle, prompt: Sequence[int]
) -> tuple[list[TokenLogprob], list[TokenLogprob]]:
    """The same prompt cold and warm on one engine."""
    engine = Engine(
        runner,
        TokenBytes(bundle),
        stop_ids=bundle.stop_ids,
        limits=SchedulerLimits(),
        clock=Clock(),
    )
    found: list[list[TokenLogprob]] = [[], []]
    for turn in range(2):
        sampling = SamplingParams(max_tokens=6, temperature=0.0, logprobs=3, ignore_eos=True)
        assert engine.submit(GenerationRequest("r", (tuple(prompt),), sampling)) is None
        while engine.has_work:
            for chunk in engine.step().chunks:
                found[turn] += chunk.logprobs
                assert chunk.counts.cached == turn * ((len(prompt) - 1) // 16 * 16)
    return found[0], found[1]
