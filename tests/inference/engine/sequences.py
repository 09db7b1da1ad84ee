"""Sequences for tests of what decides about them, without an engine."""

from inference.contracts import GenerationRequest, Priority, SamplingParams
from inference.engine.scheduling.step_budget import StepBudget, StepCost, StepLoad
from inference.engine.sequence import SequenceState, new_sequence


def sequence(
    arrival: int,
    *,
    prompt_tokens: int = 1,
    key: bytes = b"",
    priority: Priority = Priority.INTERACTIVE,
    drafts: int = 0,
) -> SequenceState:
    """One that has computed nothing; with one prompt token it is as good as decoding."""
    request = GenerationRequest(
        f"r{arrival}",
        ((1,) * prompt_tokens,),
        SamplingParams(max_tokens=8),
        priority=priority,
        fairness_key=key,
    )
    state = new_sequence(request, 0, arrival=arrival, cache_key=b"", answer=None, matcher=None)
    state.drafts = [5] * drafts
    return state


def known_cost(*, overhead_ms: float, token_ms: float) -> StepCost:
    """A cost learned from steps that took exactly so long."""
    cost = StepCost()
    for tokens in [1, 200, 30, 100] * 50:
        cost.observe(
            StepLoad(tokens=tokens, sequences=tokens // 30), overhead_ms + tokens * token_ms
        )
    return cost


def budget(
    tokens: int = 256, *, cost: StepCost | None = None, target_ms: float | None = None
) -> StepBudget:
    """A step's budget, bound to its target where it has one."""
    whole = StepBudget(cost or StepCost(), tokens, target_ms)
    whole.bound()
    return whole
