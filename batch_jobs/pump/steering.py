"""How many requests one worker keeps in flight: up while the engines have room, down at once when
somebody who waits for an answer, the KV pool or the engines' queue asks for it.

Additive increase, multiplicative decrease, with a slow start up to where it was last seen to be too
much. Pure: time and load are given. Called by the pump's loop.
"""

from dataclasses import dataclass, replace

from batch_jobs.ports import EngineLoad

DECIDE_S = 0.25
"""Between two decisions: what the last one did must be seen first."""
STEP = 2.0
"""Additive increase, per decision."""
START = 4.0
KV_HIGH_SHARE = 0.95
QUEUE_DEEP_SHARE = 0.5
"""Waiting requests, of those that run, from which on more in flight gain nothing."""
QUEUE_DEEP_MIN = 8
LIVE_PART = 16
"""While somebody is being answered, at most one in so many of what may be in flight: the engine
puts batch behind, but every batch sequence makes the step longer that a newcomer waits for."""
USED_SHARE = 0.75
"""A number in flight that is not used to this part says nothing about having more."""


@dataclass(frozen=True, slots=True)
class Steering:
    """What may be in flight now, and what is known about more.

    `ceiling` is where growth turns careful: the last number that was too much, halved.
    """

    in_flight_max: int
    target: float = START
    ceiling: float = float("inf")
    decided_at_s: float = float("-inf")

    @property
    def in_flight(self) -> int:
        """Requests that may be in flight: 1 to `in_flight_max`."""
        return max(1, min(self.in_flight_max, int(self.target)))


def steer(steering: Steering, load: EngineLoad, in_flight: int, now_s: float) -> Steering:
    """The next decision, for a load seen at `now_s` with `in_flight` requests under way."""
    if now_s - steering.decided_at_s < DECIDE_S:
        return steering
    steering = replace(steering, decided_at_s=now_s)
    if not load.connected:
        return replace(steering, target=_bounded(steering, START))
    if load.interactive_waiting > 0:
        return replace(steering, target=_bounded(steering, steering.target / 2))
    if load.interactive_live:
        # What was learnt about the engine alone stays, so that it is had back at once.
        return replace(steering, target=_toward(steering))
    if is_congested(load):
        less = _bounded(steering, min(steering.target, max(in_flight, 1)) / 2)
        return replace(steering, target=less, ceiling=less)
    if in_flight < USED_SHARE * steering.in_flight:
        return steering
    more = steering.target * 2 if steering.target < steering.ceiling else steering.target + STEP
    if steering.target < steering.ceiling < more:
        more = steering.ceiling
    return replace(steering, target=_bounded(steering, more))


def is_congested(load: EngineLoad) -> bool:
    """Whether more in flight would only wait, or push each other out of the KV pool."""
    batch_waiting = load.waiting - load.interactive_waiting
    deep = max(QUEUE_DEEP_MIN, QUEUE_DEEP_SHARE * load.running)
    return batch_waiting > deep or load.kv_used_share > KV_HIGH_SHARE


def _toward(steering: Steering) -> float:
    live_max = max(1.0, steering.in_flight_max / LIVE_PART)
    if steering.target > live_max:
        return max(live_max, steering.target / 2)
    return _bounded(steering, min(live_max, steering.target + 1))


def _bounded(steering: Steering, target: float) -> float:
    return max(1.0, min(float(steering.in_flight_max), target))
