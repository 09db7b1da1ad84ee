"""How far to guess: more where guesses come true, less where rows are dear, not at all in time."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.drafting.draft_length import (
    DRAFTS_MAX,
    FREE,
    GAIN_MIN,
    TRIAL_STEPS,
    Acceptance,
    RowCosts,
    draft_lengths,
    expected_tokens,
    measure_costs,
)
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.drafting.drafters import FLAT
from tests.inference.engine.stub_runner import StubRunner

COMPUTE_BOUND = RowCosts((1, 100), (1.0, 100.0))
"""Each row costs the same: a guess can at best pay for itself."""
FOUR_FREE = RowCosts((1, 4, 104), (1.0, 1.0, 11.0))
"""Four rows for the price of one, then a tenth of that for each."""

rates = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8)


def test_expected_tokens_are_those_of_a_coin_thrown_until_it_falls() -> None:
    rate, drafts = 0.7, 5
    by_hand = 0.0
    for outcome in itertools.product((True, False), repeat=drafts):
        chance = 1.0
        for right in outcome:
            chance *= rate if right else 1.0 - rate
        by_hand += chance * sum(1 for _ in itertools.takewhile(bool, outcome))

    assert expected_tokens(rate, drafts) == pytest.approx(by_hand)


def test_rows_for_nothing_are_all_used() -> None:
    assert draft_lengths([0.5, 0.9], [100, 3], FLAT) == [DRAFTS_MAX, 3]


def test_nothing_is_guessed_where_each_row_costs_the_same() -> None:
    assert draft_lengths([1.0, 0.5], [100, 100], COMPUTE_BOUND) == [0, 0]


def test_one_sequence_takes_the_free_rows_and_more_only_if_guesses_are_good() -> None:
    assert draft_lengths([0.3], [100], FOUR_FREE) == [3]
    assert draft_lengths([0.99], [100], FOUR_FREE) == [DRAFTS_MAX]


def test_the_likeliest_gets_the_free_rows() -> None:
    assert draft_lengths([0.1, 0.45, 0.2], [100, 100, 100], FOUR_FREE) == [0, 1, 0]


def test_a_full_batch_turns_guessing_off_and_an_emptier_one_on() -> None:
    costs = RowCosts((1, 16, 17, 64), (1.0, 1.0, 1.2, 5.0))

    assert draft_lengths([0.6] * 16, [9] * 16, costs) == [0] * 16
    assert draft_lengths([0.6] * 4, [9] * 4, costs) != [0] * 4


def test_a_source_as_slow_as_the_model_is_not_asked() -> None:
    assert draft_lengths([0.95], [100], FLAT, drafting=FLAT) == [0]
    assert draft_lengths([0.95], [100], FLAT, drafting=RowCosts((1,), (0.05,))) == [DRAFTS_MAX]


@given(rates, st.lists(st.integers(0, 12), min_size=8, max_size=8), st.sampled_from([0, 1, 2]))
def test_lengths_fit_their_room_and_are_worth_it(
    chances: list[float], rooms: list[int], which: int
) -> None:
    costs = (FLAT, COMPUTE_BOUND, FOUR_FREE)[which]
    room = rooms[: len(chances)]

    lengths = draft_lengths(chances, room, costs)

    assert all(
        0 <= count <= min(most, DRAFTS_MAX) for count, most in zip(lengths, room, strict=True)
    )
    gain = sum(map(expected_tokens, chances, lengths))
    rows = len(chances)
    plain = rows / costs.at(rows)
    assert (rows + gain) / costs.at(rows + sum(lengths)) >= plain * (
        GAIN_MIN if any(lengths) else 1
    )


def test_acceptance_follows_a_text_that_stops_repeating_itself_and_starts_again() -> None:
    acceptance = Acceptance()
    for _ in range(10):
        acceptance.note(4, 4)
    repeating = acceptance.rate
    for _ in range(10):
        acceptance.note(4, 0)
    fresh = acceptance.rate
    for _ in range(4):
        acceptance.note(3, 3)

    assert repeating > 0.95
    assert fresh < 0.35
    assert acceptance.rate > 0.6


def test_guesses_behind_a_wrong_one_are_no_evidence() -> None:
    one, seven = Acceptance(), Acceptance()
    one.note(1, 0)
    seven.note(7, 0)

    assert one == seven


def test_a_trial_is_compared_with_what_comes_once_all_of_it_is_there() -> None:
    acceptance = Acceptance(right=0.0, checked=1.0, idle_steps=TRIAL_STEPS)
    wanted = acceptance.wants_trial
    acceptance.trial, acceptance.trial_start = [7, 8, 9], 2
    acceptance.pass_step([1, 2, 7, 8])
    early = acceptance.rate
    acceptance.pass_step([1, 2, 7, 8, 4, 5])

    assert wanted
    assert early == 0.0
    assert acceptance.rate == pytest.approx(2 / 3.8)
    assert not acceptance.wants_trial
    assert acceptance.trial == []


def test_costs_between_measured_rows_lie_between_and_beyond_them_grow() -> None:
    costs = RowCosts((1, 2, 4), (1.0, 3.0, 4.0))

    assert [costs.at(rows) for rows in (1, 2, 3, 4, 8)] == [1.0, 3.0, 3.5, 4.0, 8.0]
    assert FREE.at(64) < 1e-9


@pytest.mark.parametrize(
    ("rows", "seconds"), [((2,), (1.0,)), ((1, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,))]
)
def test_costs_that_make_no_sense_are_refused(
    rows: tuple[int, ...], seconds: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="ascending"):
        RowCosts(rows, seconds)


class Metered(StubRunner):
    """Takes `seconds(rows)` per step, on a clock of its own."""

    now_s = 0.0
    disturbed_rows = 0

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        rows = sum(len(step.token_ids) for step in steps)
        self.now_s += 1.0 + 0.01 * rows if rows < 16 else 0.5 * rows
        self.now_s += rows == self.disturbed_rows
        return super().execute(steps)


@pytest.mark.parametrize("block_count", [1, 64])
def test_costs_are_measured_until_steps_are_compute_bound(block_count: int) -> None:
    runner = Metered(block_count=block_count)

    costs = measure_costs(runner, lambda: runner.now_s)

    assert costs.rows == (1, 2, 3, 4, 5, 6, 7, 8, 16)
    assert costs.at(4) == pytest.approx(1.04)
    assert costs.at(16) == pytest.approx(8.0)


def test_a_disturbed_measurement_is_no_longer_than_that_of_more_rows() -> None:
    runner = Metered()
    runner.disturbed_rows = 3

    costs = measure_costs(runner, lambda: runner.now_s)

    assert costs.at(3) == costs.at(4) == pytest.approx(1.04)
