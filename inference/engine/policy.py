"""Who gets how much of a step, and who gives way: pure functions without state.

Kept beside the scheduler so that fairness can be read and tested alone; called by the scheduler
only, and never aware of blocks.
"""

from collections.abc import Iterable, Sequence

from inference.engine.sequence import SequenceState


def rank(state: SequenceState) -> tuple[int, int]:
    """Order of service: class first, then arrival; the smallest is served first."""
    return (state.priority, state.arrival)


def split_budget(budget: int, wants: Sequence[int]) -> list[int]:
    """Shares of `budget` tokens for requests that want so many, oldest first.

    One token each for those that need just one (decoding), in order. Of the rest the oldest gets
    half, so that prompts finish in order of arrival; the other half is shared evenly, so that a
    short prompt never waits for a long one. What nobody else wants goes to the oldest in order.
    """
    shares = [0] * len(wants)
    for index, want in enumerate(wants):
        if want == 1 and budget:
            shares[index] = 1
            budget -= 1
    prefills = [index for index, want in enumerate(wants) if want > 1]
    if not prefills or not budget:
        return shares
    shares[prefills[0]] = min(wants[prefills[0]], -(-budget // 2))
    budget -= shares[prefills[0]]
    smallest_first = sorted(prefills[1:], key=lambda index: wants[index])
    for served, index in enumerate(smallest_first):
        shares[index] = min(wants[index], budget // (len(smallest_first) - served))
        budget -= shares[index]
    for index in prefills:
        more = min(wants[index] - shares[index], budget)
        shares[index] += more
        budget -= more
    return shares


def choose_victim(candidates: Iterable[SequenceState]) -> SequenceState:
    """Whom to preempt: the lowest class, there the least to recompute, there the youngest."""
    return min(candidates, key=lambda state: (-state.priority, state.computed, -state.arrival))
