"""What a step will take is learned from steps, and a budget lets in what still fits."""

import random
from collections.abc import Callable

import pytest

from inference.engine.scheduling.step_budget import StepBudget, StepCost, StepLoad
from tests.inference.engine.sequences import known_cost

SEEDS = [1, 2, 3]


def load(*parts: tuple[int, int]) -> StepLoad:
    """Of a step with so many tokens of each sequence, after its first ones."""
    return StepLoad(
        tokens=sum(tokens for tokens, _ in parts),
        sequences=len(parts),
        context_tokens=sum(start for _, start in parts),
        products=sum(tokens * start for tokens, start in parts),
    )


def real_ms(step: StepLoad) -> float:
    return 20 + 2 * step.tokens + step.sequences + 0.01 * step.context_tokens


def any_step(source: random.Random) -> StepLoad:
    decodes = [(1, source.randrange(10, 600)) for _ in range(source.randrange(1, 40))]
    prefill = [(source.randrange(10, 120), source.randrange(0, 500))]
    return load(*decodes, *(prefill if source.random() < 0.5 else []))


def learned(
    source: random.Random, took_ms: Callable[[StepLoad], float], steps: int = 200
) -> StepCost:
    cost = StepCost()
    for _ in range(steps):
        step = any_step(source)
        cost.observe(step, took_ms(step))
    return cost


def error(cost: StepCost, source: random.Random) -> float:
    """The largest relative error over steps like those it has seen."""
    steps = [any_step(source) for _ in range(50)]
    return max(abs(cost.expected_ms(step) / real_ms(step) - 1) for step in steps)


@pytest.mark.parametrize("seed", SEEDS)
def test_durations_are_foretold_after_some_steps(seed: int) -> None:
    source = random.Random(seed)

    assert error(learned(source, real_ms), source) < 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_a_noisy_machine_with_hiccups_hardly_misleads(seed: int) -> None:
    source = random.Random(seed)

    def noisy_ms(step: StepLoad) -> float:
        hiccup = 20.0 if source.random() < 0.03 else 1.0
        return real_ms(step) * source.lognormvariate(0.0, 0.1) * hiccup

    assert error(learned(source, noisy_ms), source) < 0.35


def test_a_machine_that_becomes_slower_is_noticed() -> None:
    source = random.Random(4)
    cost = learned(source, real_ms)
    for _ in range(200):
        step = any_step(source)
        cost.observe(step, 10 * real_ms(step))

    step = any_step(source)
    assert cost.expected_ms(step) == pytest.approx(10 * real_ms(step), rel=0.1)


def test_decoding_alone_unlearns_nothing_about_prompts() -> None:
    source = random.Random(5)
    cost = learned(source, real_ms)
    for count in range(1000):
        step = load(*[(1, 100 + count)] * (1 + count % 20))
        cost.observe(step, real_ms(step))

    prompt = load((200, 0))
    assert cost.expected_ms(prompt) == pytest.approx(real_ms(prompt), rel=0.15)


def test_steps_that_took_no_time_teach_nothing() -> None:
    cost = StepCost()

    cost.observe(load((5, 0)), 0.0)

    assert cost.expected_ms(load((5, 0))) == 0.0


def test_a_bound_budget_lets_in_what_ends_in_time() -> None:
    cost = known_cost(overhead_ms=20.0, token_ms=2.0)
    budget = StepBudget(cost, 256, 120.0)
    assert budget.room(256, 0) == 256

    budget.bound()
    budget.take(30, 0)

    assert budget.room(256, 0) == pytest.approx(20, abs=1)


def test_tokens_limit_a_budget_as_well() -> None:
    budget = StepBudget(known_cost(overhead_ms=1.0, token_ms=0.01), 64, 200.0)
    budget.bound()
    budget.take(60, 0)

    assert budget.room(100, 0) == 4


def test_a_target_below_the_overhead_still_leaves_as_much_time_for_tokens() -> None:
    budget = StepBudget(known_cost(overhead_ms=400.0, token_ms=2.0), 1000, 50.0)
    budget.bound()

    assert budget.room(1000, 0) == pytest.approx(200, abs=10)


def test_what_was_foretold_is_what_is_observed() -> None:
    budget = StepBudget(known_cost(overhead_ms=20.0, token_ms=2.0), 256, None)
    budget.take_decodes(3, 300)
    budget.take(1, 50)
    budget.take(9, 50, begun=True)

    assert budget.load == load((1, 100), (1, 100), (1, 100), (10, 50))
