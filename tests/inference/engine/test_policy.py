"""How a step's token budget is shared."""

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.policy import split_budget

budgets = st.integers(0, 300)
wishes = st.lists(st.integers(1, 500), max_size=20)


@given(budgets, wishes)
def test_shares_stay_within_budget_and_wishes_and_waste_nothing(
    budget: int, wants: list[int]
) -> None:
    shares = split_budget(budget, wants)

    assert sum(shares) == min(budget, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))


@given(wishes)
def test_whoever_decodes_is_served_whatever_prompts_wait(wants: list[int]) -> None:
    decoding = wants.count(1)

    shares = split_budget(decoding + 1, wants)

    assert all(share == 1 for share, want in zip(shares, wants, strict=True) if want == 1)


@given(st.integers(1, 300), wishes.filter(bool))
def test_the_oldest_always_advances(budget: int, wants: list[int]) -> None:
    decoding = wants.count(1)

    shares = split_budget(budget + decoding, wants)

    assert shares[0] > 0


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    shares = split_budget(256, [100_000, 40])

    assert shares == [216, 40]


def test_long_prompts_finish_in_order_of_arrival_while_all_advance() -> None:
    shares = split_budget(256, [5_000, 5_000, 5_000])

    assert shares == [128, 64, 64]
