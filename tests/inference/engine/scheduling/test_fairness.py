"""Fair shares between keys: the counters, the queue, and what traffic gets from both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.contracts import Priority
from inference.engine.scheduling.fairness import (
    CREDIT_TOKENS,
    IDLE_KEYS_MAX,
    OUTPUT_WEIGHT,
    FairQueue,
    FairShares,
)
from inference.engine.scheduling.scheduler import SchedulerLimits
from tests.inference.engine.scheduling.timed_engine import Traffic, p95
from tests.inference.engine.sequences import sequence

ASKED = 40
"""Requests of the quiet tenant in a test of its times."""


def test_who_got_less_for_its_weight_goes_first() -> None:
    shares = FairShares()
    shares.enter(b"heavy", 4.0)
    shares.enter(b"light", 1.0)
    shares.charge(b"heavy", 300, 0)
    shares.charge(b"light", 100, 0)

    assert shares.ranked([b"light", b"heavy"]) == [b"heavy", b"light"]


def test_an_output_token_counts_more_than_one_of_a_prompt() -> None:
    shares = FairShares()
    shares.enter(b"a", 1.0)
    before = shares.served(b"a")

    shares.charge(b"a", 10, 5)

    assert shares.served(b"a") - before == 10 + OUTPUT_WEIGHT * 5


def test_who_comes_back_has_its_credit_and_no_more() -> None:
    shares = FairShares()
    shares.enter(b"flood", 1.0)
    shares.charge(b"flood", 100_000, 0)

    shares.enter(b"new", 1.0)

    assert shares.served(b"flood") - shares.served(b"new") == CREDIT_TOKENS


def test_leaving_and_coming_back_pays_no_debt_and_renews_no_credit() -> None:
    shares = FairShares()
    for key in (b"a", b"b"):
        shares.enter(key, 1.0)
    shares.charge(b"a", 5_000, 0)
    shares.charge(b"b", 700, 0)
    lead = shares.served(b"a") - shares.served(b"b")

    shares.leave(b"a")
    shares.enter(b"a", 1.0)

    assert shares.served(b"a") - shares.served(b"b") == lead


def test_newcomers_never_push_back_those_who_came_before_them() -> None:
    shares = FairShares()
    shares.enter(b"flood", 1.0)
    shares.charge(b"flood", 50_000, 0)
    for number in range(20):
        shares.enter(b"new%d" % number, 1.0)

    starts = {shares.served(b"new%d" % number) for number in range(20)}

    assert len(starts) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), min_size=1, max_size=200))
def test_serving_the_least_served_keeps_busy_keys_within_one_portion(
    portions: list[tuple[int, int]],
) -> None:
    shares = FairShares()
    keys = [b"%d" % number for number in range(6)]
    for key in keys:
        shares.enter(key, 1.0)

    for _, tokens in portions:
        shares.charge(shares.ranked(keys)[0], tokens, 0)

    served = [shares.served(key) for key in keys]
    assert max(served) - min(served) <= max(tokens for _, tokens in portions)


def test_keys_without_work_are_forgotten_past_a_limit() -> None:
    shares = FairShares()
    shares.enter(b"stays", 1.0)
    for number in range(IDLE_KEYS_MAX + 5):
        key = b"k%d" % number
        shares.enter(key, 1.0)
        shares.charge(key, 10_000, 0)
        shares.leave(key)
    for key in (b"k0", b"k%d" % (IDLE_KEYS_MAX + 4)):
        shares.enter(key, 1.0)

    assert shares.served(b"k0") == shares.served(b"stays")
    assert shares.served(b"k%d" % (IDLE_KEYS_MAX + 4)) > shares.served(b"stays")


def test_the_queue_serves_keys_by_need_and_each_in_order_of_arrival() -> None:
    shares, queue = FairShares(), FairQueue()
    states = [sequence(n, key=key) for n, key in enumerate([b"a", b"a", b"b"])]
    for state in states:
        shares.enter(state.key, 1.0)
        queue.push(state)
    shares.charge(b"a", 50, 0)

    assert queue.next(shares, {}, ()) is states[2]
    assert queue.next(shares, {b"b": 100}, ()) is states[0]
    assert queue.next(shares, {}, {b"b"}) is states[0]
    assert queue.first() == [states[0]]


def ask_quietly(traffic: Traffic, *, flooding: bool) -> list[float]:
    """The first-token times of a tenant that asks one at a time, at any moment of a step."""
    open_id, asked, asks_at_s = "", 0, traffic.clock.now_s
    while asked < ASKED or open_id:
        now_s = traffic.clock.now_s
        if not open_id and asks_at_s <= now_s:
            open_id = traffic.ask(b"quiet", came_at_s=asks_at_s)
            asked += 1
        for request_id in traffic.step():
            if request_id != open_id:
                traffic.ask(b"flood")
            else:
                open_id, asks_at_s = "", traffic.clock.now_s + 0.317
        if not flooding:
            traffic.clock.now_s = max(traffic.clock.now_s, asks_at_s if not open_id else 0.0)
    return traffic.first_token_s[b"quiet"]


@pytest.mark.parametrize("running_max", [64, 8])
def test_a_flood_at_most_doubles_the_first_token_time_of_a_quiet_tenant(running_max: int) -> None:
    limits = SchedulerLimits(running_max=running_max)
    idle = p95(ask_quietly(Traffic(limits), flooding=False))
    flooded = Traffic(limits)
    for _ in range(64):
        flooded.ask(b"flood")
    for _ in range(30):
        flooded.step()

    busy = p95(ask_quietly(flooded, flooding=True))

    assert busy <= 2 * idle
    assert flooded.tokens[b"flood"] > 3 * flooded.tokens[b"quiet"]


def test_steps_stay_near_their_target_under_a_flood() -> None:
    traffic = Traffic(SchedulerLimits(inter_token_target_ms=200.0))
    for _ in range(64):
        traffic.ask(b"flood", prompt_tokens=30, output_tokens=200)
    for _ in range(300):
        for _ in traffic.step():
            traffic.ask(b"flood", prompt_tokens=30, output_tokens=200)

    durations_ms = [trace.duration_ms for trace in traffic.engine.counters.trace][50:]
    assert 150 <= sorted(durations_ms)[len(durations_ms) // 2] <= 220
    assert p95(durations_ms) <= 250


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_two_floods_share_by_weight(weight: float) -> None:
    traffic = Traffic()
    for _ in range(40):
        traffic.ask(b"one")
        traffic.ask(b"other", weight=weight)
    for step in range(400):
        if step == 50:
            traffic.tokens.clear()
        for request_id in traffic.step():
            if request_id.startswith("one"):
                traffic.ask(b"one")
            else:
                traffic.ask(b"other", weight=weight)

    assert traffic.tokens[b"other"] / traffic.tokens[b"one"] == pytest.approx(weight, rel=0.2)


def test_batch_hardly_delays_the_other_class_and_keeps_what_that_leaves() -> None:
    def serve(*, batch: bool, quiet: bool) -> Traffic:
        traffic = Traffic()
        open_id, asks_at_s = "", traffic.clock.now_s + 5.0
        for _ in range(30 if batch else 0):
            traffic.ask(b"batch", priority=Priority.BATCH)
        while traffic.clock.now_s < 240.0:
            if quiet and not open_id and asks_at_s <= traffic.clock.now_s:
                open_id = traffic.ask(b"quiet", came_at_s=asks_at_s)
            for request_id in traffic.step():
                if request_id == open_id:
                    open_id, asks_at_s = "", traffic.clock.now_s + 2.917
                else:
                    traffic.ask(b"batch", priority=Priority.BATCH)
            if not batch and not open_id:
                traffic.clock.now_s = max(traffic.clock.now_s, asks_at_s)
        return traffic

    alone, batch_alone = serve(batch=False, quiet=True), serve(batch=True, quiet=False)
    both = serve(batch=True, quiet=True)

    busy_s = sum(trace.duration_ms for trace in alone.engine.counters.trace) / 1000
    free = 1 - busy_s / (alone.clock.now_s - 100.0)
    assert p95(both.first_token_s[b"quiet"]) <= 1.5 * p95(alone.first_token_s[b"quiet"])
    assert both.tokens[b"batch"] >= 0.8 * free * batch_alone.tokens[b"batch"]


def test_batch_takes_longer_steps_once_nobody_has_come_for_a_while() -> None:
    traffic = Traffic(SchedulerLimits(inter_token_target_ms=200.0))

    def median_ms(seconds: float) -> float:
        """Of the steps of batch for so long."""
        seen, until_s = len(traffic.engine.counters.trace), traffic.clock.now_s + seconds
        while traffic.clock.now_s < until_s:
            for _ in traffic.step():
                traffic.ask(b"batch", priority=Priority.BATCH)
        durations_ms = [each.duration_ms for each in list(traffic.engine.counters.trace)[seen:]]
        return sorted(durations_ms)[len(durations_ms) // 2]

    for _ in range(64):
        traffic.ask(b"batch", priority=Priority.BATCH)
    at_once_ms, soon_ms, quiet_ms = median_ms(1.0), median_ms(2.0), median_ms(27.0)
    traffic.ask(b"quiet", prompt_tokens=4, output_tokens=1)
    again_ms = median_ms(1.0)

    assert at_once_ms <= 110
    assert 110 < soon_ms <= 330
    assert 400 <= quiet_ms <= 660
    assert again_ms <= 110


def test_batch_has_a_part_of_each_step_in_which_many_others_only_decode() -> None:
    traffic = Traffic(SchedulerLimits(inter_token_target_ms=200.0))
    for _ in range(28):
        traffic.ask(b"live", prompt_tokens=32, output_tokens=2000)
    for _ in range(8):
        traffic.ask(b"batch", priority=Priority.BATCH)
    while traffic.tokens.get(b"live", 0) < 28 * 250:
        for _ in traffic.step():
            traffic.ask(b"batch", priority=Priority.BATCH)

    durations_ms = [each.duration_ms for each in traffic.engine.counters.trace]
    assert traffic.tokens[b"batch"] >= 0.03 * traffic.tokens[b"live"]
    assert p95(durations_ms) <= 220
