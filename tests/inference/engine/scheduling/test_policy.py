"""How a step is shared among those who run."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from inference.contracts import Priority
from inference.engine.scheduling.policy import PREFILL_TOKENS_MIN, choose_victim, deal, split_budget
from inference.engine.sequence import SequenceState
from tests.inference.engine.sequences import budget, known_cost, sequence

COST = known_cost(overhead_ms=20.0, token_ms=2.0)


def quiet_first(keys: Iterable[bytes]) -> list[bytes]:
    """The order of keys in which the quiet one is the least served."""
    return sorted(keys, key=lambda key: key != b"quiet")


wishes = st.lists(st.integers(1, 500), max_size=20)


@given(st.integers(0, 300), wishes)
def test_shares_of_prompts_stay_within_budget_and_wishes_and_waste_nothing(
    tokens: int, wants: list[int]
) -> None:
    shares = split_budget(tokens, wants)

    assert sum(shares) == min(tokens, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))


@given(st.integers(1, 300), wishes.filter(bool))
def test_the_oldest_prompt_always_advances(tokens: int, wants: list[int]) -> None:
    assert split_budget(tokens, wants)[0] > 0


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    assert split_budget(256, [100_000, 40]) == [216, 40]


def test_long_prompts_finish_in_order_of_arrival_while_all_advance() -> None:
    assert split_budget(256, [5_000, 5_000, 5_000]) == [128, 64, 64]


@st.composite
def running(draw: st.DrawFn) -> list[SequenceState]:
    """Decoding sequences with and without guesses, and prompts, of up to three keys."""
    wants = draw(st.lists(st.sampled_from([1, 1, 1, 2, 40, 300]), min_size=1, max_size=20))
    return [
        sequence(
            arrival,
            prompt_tokens=want,
            key=draw(st.sampled_from([b"a", b"b", b"c"])),
            drafts=draw(st.integers(0, 4)) if want == 1 else 0,
        )
        for arrival, want in enumerate(wants)
    ]


@given(running(), st.integers(20, 300), st.none() | st.floats(1.0, 500.0), st.booleans())
def test_a_deal_keeps_to_tokens_and_wishes_and_always_moves_the_first(
    members: list[SequenceState], tokens: int, target_ms: float | None, streams: bool
) -> None:
    given_tokens = deal(
        members, sorted, budget(tokens, cost=COST, target_ms=target_ms), streams=streams, leads=True
    )

    assert sum(given_tokens) <= tokens
    assert given_tokens[0] > 0
    for state, count in zip(members, given_tokens, strict=True):
        assert 0 <= count <= state.uncomputed + len(state.drafts)


@given(running(), st.integers(20, 300), st.floats(1.0, 500.0))
def test_every_key_that_decodes_gets_a_token_whatever_prompts_of_others_want(
    members: list[SequenceState], tokens: int, target_ms: float
) -> None:
    decoding = {state.key for state in members if state.uncomputed == 1}
    given_tokens = deal(
        members, sorted, budget(tokens, cost=COST, target_ms=target_ms), streams=True, leads=True
    )

    served = {state.key for state, count in zip(members, given_tokens, strict=True) if count}
    assert decoding <= served


def test_all_decode_however_long_it_takes_when_nobody_else_waits() -> None:
    members = [sequence(n, key=b"a") for n in range(50)]

    given_tokens = deal(
        members, sorted, budget(cost=COST, target_ms=60.0), streams=True, leads=True
    )

    assert given_tokens == [1] * 50


def test_the_prompt_of_a_less_served_key_takes_the_place_of_the_others_decoding() -> None:
    flood = [sequence(n, key=b"flood") for n in range(40)]
    members = [*flood, sequence(40, key=b"quiet", prompt_tokens=256)]

    given_tokens = deal(
        members,
        quiet_first,
        budget(cost=COST, target_ms=220.0),
        streams=True,
        leads=True,
    )

    # 100 tokens fit into 200 ms; a sixteenth of the step is the flood's in any case.
    assert given_tokens[-1] >= 90
    assert 5 <= sum(given_tokens[:-1]) <= 10


def test_few_who_decode_go_on_whatever_prompt_comes() -> None:
    members = [sequence(n, key=b"flood") for n in range(5)]
    members.append(sequence(5, key=b"quiet", prompt_tokens=256))

    given_tokens = deal(
        members, quiet_first, budget(cost=COST, target_ms=220.0), streams=True, leads=True
    )

    assert given_tokens[:-1] == [1] * 5
    assert given_tokens[-1] >= 90


def test_those_who_gave_way_decode_in_turn() -> None:
    members = [sequence(n, key=b"flood") for n in range(40)]
    members.append(sequence(40, key=b"quiet", prompt_tokens=1000))
    turns = [0] * 40
    for step in range(1, 9):
        given_tokens = deal(
            members,
            quiet_first,
            budget(cost=COST, target_ms=220.0),
            streams=True,
            leads=False,
        )
        for index in range(40):
            turns[index] += given_tokens[index]
            if given_tokens[index]:
                members[index].last_token_at_s = float(step)

    assert max(turns) - min(turns) <= 1
    assert min(turns) >= 1


def test_the_prompt_of_a_more_served_key_takes_nobodys_place_but_never_stands_still() -> None:
    members = [sequence(n, key=b"a") for n in range(50)]
    members.append(sequence(50, key=b"b", prompt_tokens=256))

    given_tokens = deal(
        members, sorted, budget(cost=COST, target_ms=60.0), streams=True, leads=True
    )

    assert given_tokens == [1] * 50 + [PREFILL_TOKENS_MIN]


def test_a_prompt_gets_its_least_also_where_a_token_or_two_would_still_fit() -> None:
    members = [sequence(n, key=b"crowd") for n in range(12)]
    members.append(sequence(12, key=b"quiet", prompt_tokens=256))

    # 20 ms of overhead and 12 decodes at 2 ms leave room for two or three tokens of 50 ms.
    given_tokens = deal(
        members, quiet_first, budget(cost=COST, target_ms=50.0), streams=True, leads=True
    )

    assert given_tokens[-1] == PREFILL_TOKENS_MIN


def test_batch_takes_what_fits_into_the_rest_of_the_step() -> None:
    rest = budget(cost=COST, target_ms=120.0)
    rest.take(20, 0)
    members = [sequence(n, prompt_tokens=want) for n, want in enumerate([1, 1, 1, 200])]

    given_tokens = deal(members, sorted, rest, streams=False, leads=False)

    assert given_tokens[:3] == [1, 1, 1]
    assert 20 <= given_tokens[3] <= 27


def test_batch_gets_nothing_of_a_step_that_is_full() -> None:
    rest = budget(cost=COST, target_ms=120.0)
    rest.take(80, 0)

    assert deal([sequence(0), sequence(1)], sorted, rest, streams=False, leads=False) == [0, 0]


def test_guesses_are_checked_only_with_what_prompts_leave() -> None:
    members = [sequence(0, drafts=8), sequence(1, prompt_tokens=27)]

    given_tokens = deal(members, sorted, budget(32), streams=True, leads=True)

    assert given_tokens == [1 + 4, 27]


def test_the_victim_is_of_batch_then_the_cheapest_then_the_youngest() -> None:
    recompute = {0: 10, 1: 10, 2: 50, 3: 500}
    states = [sequence(n) for n in (0, 1, 2)] + [sequence(3, priority=Priority.BATCH)]

    first = choose_victim(states, lambda state: recompute[state.arrival])
    second = choose_victim(states[:3], lambda state: recompute[state.arrival])

    assert (first, second) == (states[3], states[1])
