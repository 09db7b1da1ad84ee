"""How many requests a pump keeps in flight, as pure arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from batch_jobs.ports import EngineLoad
from batch_jobs.pump.steering import DECIDE_S, Steering, is_congested, steer

IDLE = EngineLoad(connected=True, running=0, waiting=0, kv_used_share=0.1)
LIVE = EngineLoad(True, 4, 0, 0.2, interactive_live=True)
QUEUED = EngineLoad(True, 4, 3, 0.2, interactive_live=True, interactive_waiting=3)
FULL = EngineLoad(True, 32, 20, 0.99)
AWAY = EngineLoad(connected=False, running=0, waiting=0, kv_used_share=0.0)

loads = st.sampled_from([IDLE, LIVE, QUEUED, FULL, AWAY])
histories = st.lists(st.tuples(loads, st.floats(0.0, 1.0)), max_size=60)


def after(steering: Steering, *seen: EngineLoad, used: float = 1.0) -> Steering:
    """Decided by each load in turn, with this part of what may be in flight in use."""
    for load in seen:
        now_s = max(0.0, steering.decided_at_s + DECIDE_S)
        steering = steer(steering, load, int(used * steering.in_flight), now_s)
    return steering


@given(histories, st.integers(1, 500))
def test_there_is_always_one_in_flight_and_never_more_than_allowed(
    history: list[tuple[EngineLoad, float]], in_flight_max: int
) -> None:
    steering = Steering(in_flight_max)
    for load, used in history:
        steering = after(steering, load, used=used)
        assert 1 <= steering.in_flight <= in_flight_max


@given(histories, st.integers(1, 500))
def test_what_is_too_much_is_never_answered_with_more(
    history: list[tuple[EngineLoad, float]], in_flight_max: int
) -> None:
    steering = Steering(in_flight_max)
    for load, used in history:
        decided = after(steering, load, used=used)
        if load.interactive_waiting or is_congested(load):
            assert decided.in_flight <= steering.in_flight
        steering = decided


@given(histories, st.integers(1, 64))
def test_full_capacity_is_back_two_seconds_after_the_last_who_waited(
    history: list[tuple[EngineLoad, float]], in_flight_max: int
) -> None:
    steering = Steering(in_flight_max)
    for load, used in history:
        if not is_congested(load):
            steering = after(steering, load, used=used)
    steering = after(steering, *[IDLE] * int(2.0 / DECIDE_S))
    assert steering.in_flight == in_flight_max


@given(st.integers(1, 64))
def test_it_starts_fast(in_flight_max: int) -> None:
    assert after(Steering(in_flight_max), *[IDLE] * 4).in_flight == in_flight_max


def test_it_halves_at_once_and_then_grows_by_steps() -> None:
    steering = after(Steering(64), *[IDLE] * 8, FULL)
    assert steering.in_flight == 32
    grown = after(steering, IDLE)
    assert 32 < grown.in_flight <= 36


def test_it_does_not_grow_while_it_is_not_used() -> None:
    assert after(Steering(64), *[IDLE] * 8, used=0.3).in_flight == Steering(64).in_flight


def test_little_is_in_flight_while_somebody_is_answered_and_less_while_he_waits() -> None:
    steering = after(Steering(64), *[IDLE] * 8, *[LIVE] * 8)
    assert steering.in_flight == 4
    assert after(steering, *[QUEUED] * 8).in_flight == 1


def test_decisions_wait_until_the_last_one_can_be_seen() -> None:
    steering = after(Steering(64), IDLE)
    assert steer(steering, FULL, 64, steering.decided_at_s + DECIDE_S / 2) is steering
