"""SmolLM2 behind the engine: the same ids cold, warm, alone, in a batch and after preemption."""

from dataclasses import replace

import pytest

from inference.contracts import BLOCK_TOKENS, GenerationRequest, SamplingParams
from inference.engine.computing.runner import load_runner
from inference.engine.engine import Engine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import Runner
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.token_bytes import TokenBytes
from tests.inference.conftest import Golden
from tests.inference.engine.driving import Answers, Clock, run_to_end

POOL_TOKENS = 4096
GREEDY = SamplingParams(max_tokens=48, temperature=0.0)


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner:
    return load_runner(
        bundle, pool_tokens=POOL_TOKENS, threads=1, device="cpu", weight_format="float32"
    )


@pytest.fixture(scope="module")
def token_bytes(bundle: Bundle) -> TokenBytes:
    return TokenBytes(bundle)


@pytest.fixture
def engine(runner: Runner, bundle: Bundle, token_bytes: TokenBytes) -> Engine:
    """A fresh engine, so an empty prefix cache, over the loaded weights."""
    limits = SchedulerLimits(running_max=16)
    return Engine(runner, token_bytes, stop_ids=bundle.stop_ids, limits=limits, clock=Clock())


def generate(engine: Engine, **requests: tuple[tuple[int, ...], SamplingParams, bytes]) -> Answers:
    """All of these at once, to their ends."""
    for request_id, (prompt_ids, sampling, salt) in requests.items():
        assert (
            engine.submit(GenerationRequest(request_id, (prompt_ids,), sampling, cache_salt=salt))
            is None
        )
    return run_to_end(engine)


def generate_goldens(engine: Engine, goldens: list[Golden]) -> list[list[int]]:
    answers = generate(
        engine, **{f"g{n}": (golden.prompt_ids, GREEDY, b"") for n, golden in enumerate(goldens)}
    )
    return [answers.token_ids[f"g{n}"] for n in range(len(goldens))]


def disagreeing(goldens: list[Golden], outputs: list[list[int]]) -> list[str]:
    return [
        golden.prompt
        for golden, output in zip(goldens, outputs, strict=True)
        if not golden.agrees(output)
    ]


def test_greedy_answers_equal_the_reference_in_a_batch_cold_and_warm(
    engine: Engine, goldens: list[Golden]
) -> None:
    cold = generate_goldens(engine, goldens)
    cached_before = engine.stats().prompt_tokens_cached

    warm = generate_goldens(engine, goldens)

    assert disagreeing(goldens, cold) == []
    assert disagreeing(goldens, warm) == []
    hits = engine.stats().prompt_tokens_cached - cached_before
    assert hits >= sum((len(golden.prompt_ids) - 1) // BLOCK_TOKENS for golden in goldens)


def test_greedy_answers_equal_the_reference_alone(engine: Engine, goldens: list[Golden]) -> None:
    few = goldens[:4]

    outputs = [generate_goldens(engine, [golden])[0] for golden in few]

    assert disagreeing(few, outputs) == []


@pytest.mark.long
def test_all_greedy_answers_equal_the_reference_alone(
    engine: Engine, goldens: list[Golden]
) -> None:
    outputs = [generate_goldens(engine, [golden])[0] for golden in goldens]

    assert disagreeing(goldens, outputs) == []


def test_text_is_what_the_ids_decode_to(engine: Engine, goldens: list[Golden]) -> None:
    answers = generate(engine, r=(goldens[0].prompt_ids, GREEDY, b""))

    assert answers.text("r") == goldens[0].text == "The capital of France is Paris."


@pytest.mark.parametrize("extra", [0, 1])
def test_a_prompt_at_a_block_boundary_answers_the_same_from_the_cache(
    engine: Engine, goldens: list[Golden], extra: int
) -> None:
    prompt = goldens[1].prompt_ids[: 2 * BLOCK_TOKENS + extra]
    sampling = replace(GREEDY, max_tokens=8)
    cold = generate(engine, cold=(prompt, sampling, b"")).token_ids["cold"]

    answers = generate(engine, warm=(prompt, sampling, b""))

    assert answers.token_ids["warm"] == cold
    assert answers.finishes["warm"].counts.cached == (1 + extra) * BLOCK_TOKENS


def test_tenants_never_share_and_always_find_their_own(
    engine: Engine, goldens: list[Golden]
) -> None:
    prompt = goldens[0].prompt_ids + goldens[1].prompt_ids
    sampling = replace(GREEDY, max_tokens=6)
    cached, outputs = {}, []

    for name, salt in (("a1", b"acme"), ("g1", b"globex"), ("a2", b"acme"), ("g2", b"globex")):
        answers = generate(engine, **{name: (prompt, sampling, salt)})
        cached[name] = answers.finishes[name].counts.cached
        outputs.append(answers.token_ids[name])

    own = (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert cached == {"a1": 0, "g1": 0, "a2": own, "g2": own}
    assert all(output == outputs[0] for output in outputs)


@pytest.mark.long
def test_a_stop_string_leaves_a_cache_that_answers_the_same(
    engine: Engine, goldens: list[Golden]
) -> None:
    golden = goldens[1]
    stopping = replace(GREEDY, stop=("sea,",))
    stopped = generate(engine, s=(golden.prompt_ids, stopping, b""))

    after = generate_goldens(engine, [golden])

    assert stopped.text("s") == "The waves of the "
    assert disagreeing([golden], after) == []


@pytest.mark.long
def test_preempted_requests_answer_as_if_they_never_had_been(
    runner: Runner, bundle: Bundle, token_bytes: TokenBytes, goldens: list[Golden]
) -> None:
    class SmallPool:
        """The same runner with fewer of its blocks in use."""

        block_count = 12
        vocab_size = runner.vocab_size
        hidden_size = runner.hidden_size
        context_tokens_max = runner.context_tokens_max
        cache_key = runner.cache_key
        device = runner.device
        execute = staticmethod(runner.execute)

    engine = Engine(
        SmallPool(),
        token_bytes,
        stop_ids=bundle.stop_ids,
        limits=SchedulerLimits(running_max=16),
        clock=Clock(),
    )

    outputs = generate_goldens(engine, goldens[:6])

    assert engine.stats().preemptions > 0
    assert disagreeing(goldens[:6], outputs) == []


def test_seeded_sampling_repeats_itself_alone_and_in_any_batch(
    engine: Engine, goldens: list[Golden]
) -> None:
    def sampling(seed: int) -> SamplingParams:
        return SamplingParams(max_tokens=16, temperature=0.8, top_p=0.95, seed=seed)

    alone = [
        generate(engine, r=(golden.prompt_ids, sampling(n), b"")).token_ids["r"]
        for n, golden in enumerate(goldens[:3])
    ]
    batch = generate(
        engine,
        **{f"r{n}": (golden.prompt_ids, sampling(n), b"") for n, golden in enumerate(goldens[:3])},
        **{f"greedy{n}": (golden.prompt_ids, GREEDY, b"") for n, golden in enumerate(goldens[:5])},
        same_seed=(goldens[0].prompt_ids, sampling(0), b""),
        other_seed=(goldens[0].prompt_ids, sampling(99), b""),
    )

    assert [batch.token_ids[f"r{n}"] for n in range(3)] == alone
    assert batch.token_ids["same_seed"] == alone[0]
    assert batch.token_ids["other_seed"] != alone[0]
