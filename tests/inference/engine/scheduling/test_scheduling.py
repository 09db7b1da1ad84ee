"""The scheduler through the engine's door: whatever is asked, each answer is what it would be
alone, nobody is lost, and no block is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import BLOCK_TOKENS, FinishReason, Priority
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import SequenceStep, StepOutput
from tests.inference.engine.driving import (
    Answers,
    Clock,
    advance,
    chunk_ids,
    make_engine,
    request,
    run_to_end,
)
from tests.inference.engine.stub_runner import StubRunner, expected_output

BATCH, INTERACTIVE = Priority.BATCH, Priority.INTERACTIVE


@dataclass(frozen=True)
class Arrival:
    """A request that comes before some step, and maybe goes before another."""

    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    priority: Priority
    abort_step: int | None
    salt: bytes


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    """Prompts over two letters with common prefixes, so that blocks are shared a lot."""
    shared = draw(st.sampled_from([0, 15, 16, 17, 32, 48]))
    own = draw(st.lists(st.integers(0, 1), min_size=1, max_size=20))
    step = draw(st.integers(0, 30))
    return Arrival(
        step=step,
        prompt=(7,) * shared + tuple(own),
        max_tokens=draw(st.integers(1, 40)),
        priority=draw(st.sampled_from(Priority)),
        abort_step=draw(st.none() | st.integers(step, 60)),
        salt=draw(st.sampled_from([b"", b"other"])),
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(arrivals(), min_size=1, max_size=14),
    st.integers(4, 24),
    st.integers(1, 6),
    st.integers(0, 40),
)
def test_everybody_gets_the_answer_they_would_get_alone(
    comers: list[Arrival], block_count: int, running_max: int, extra_step_tokens: int
) -> None:
    runner = StubRunner(block_count=block_count)
    limits = SchedulerLimits(
        step_tokens_max=running_max + extra_step_tokens,
        running_max=running_max,
        batch_wait_steps_max=5,
    )
    engine = make_engine(runner, limits=limits)
    answers = Answers()
    for step in range(61):
        for index, comer in enumerate(comers):
            if comer.step == step:
                refusal = engine.submit(
                    request(
                        f"r{index}",
                        comer.prompt,
                        comer.max_tokens,
                        priority=comer.priority,
                        salt=comer.salt,
                    )
                )
                if refusal is not None:
                    answers.take_finish(refusal)
            if comer.abort_step == step:
                aborted = engine.abort(f"r{index}")
                if aborted is not None:
                    answers.take_finish(aborted)
        if engine.has_work:
            answers.take(engine.step())
        engine.check()
        assert engine.stats().running <= running_max
    run_to_end(engine, answers)

    assert set(answers.finishes) == {f"r{index}" for index in range(len(comers))}
    for index, comer in enumerate(comers):
        finish = answers.finishes[f"r{index}"]
        tokens = answers.token_ids.get(f"r{index}", [])
        assert tokens == expected_output(comer.prompt, len(tokens))
        fits = len(comer.prompt) + comer.max_tokens <= block_count * BLOCK_TOKENS
        if not fits:
            assert finish.reason is FinishReason.REFUSED
        elif finish.reason is FinishReason.LENGTH:
            assert len(tokens) == comer.max_tokens
        else:
            assert finish.reason is FinishReason.CANCELLED
            assert comer.abort_step is not None
    assert all(
        sum(len(step.token_ids) for step in steps) <= limits.step_tokens_max
        for steps in runner.steps
    )


def test_a_prompt_of_whole_blocks_is_computed_again_in_its_last_block() -> None:
    runner = StubRunner()
    engine = make_engine(runner)
    prompt = [5] * (2 * BLOCK_TOKENS)
    for name in ("cold", "warm"):
        assert engine.submit(request(name, prompt)) is None
        answers = run_to_end(engine)

    assert answers.finishes["warm"].counts.cached == BLOCK_TOKENS
    assert answers.token_ids["warm"] == expected_output(prompt, 8)


@pytest.mark.parametrize("extra", [1, 2, 15])
def test_a_prompt_just_past_a_block_is_right_cold_and_warm(extra: int) -> None:
    engine = make_engine(StubRunner())
    prompt = [5] * (2 * BLOCK_TOKENS + extra)
    outputs = []
    for name in ("cold", "warm"):
        assert engine.submit(request(name, prompt)) is None
        answers = run_to_end(engine)
        outputs.append(answers.token_ids[name])

    assert outputs[0] == outputs[1] == expected_output(prompt, 8)
    assert answers.finishes["warm"].counts.cached == 2 * BLOCK_TOKENS


def test_another_salt_never_hits() -> None:
    engine = make_engine(StubRunner())
    prompt = list(range(50))
    cached = {}
    for name, salt in (("a1", b"A"), ("b1", b"B"), ("a2", b"A"), ("b2", b"B")):
        assert engine.submit(request(name, prompt, salt=salt)) is None
        cached[name] = run_to_end(engine).finishes[name].counts.cached

    assert cached == {"a1": 0, "b1": 0, "a2": 48, "b2": 48}


def test_a_chat_that_goes_on_hits_the_answer_that_was_generated() -> None:
    engine = make_engine(StubRunner())
    prompt = list(range(20))
    assert engine.submit(request("turn1", prompt, 30)) is None
    output = run_to_end(engine).token_ids["turn1"]
    assert engine.submit(request("turn2", [*prompt, *output, 1, 2, 3], 4)) is None

    answers = run_to_end(engine)

    # 49 tokens have KV (the last drawn token has none): three full blocks.
    assert answers.finishes["turn2"].counts.cached == 3 * BLOCK_TOKENS
    assert answers.token_ids["turn2"] == expected_output([*prompt, *output, 1, 2, 3], 4)


def test_two_long_outputs_that_share_a_prefix_finish_in_a_tiny_pool() -> None:
    engine = make_engine(StubRunner(block_count=6))
    prompt = [9] * 33
    assert engine.submit(request("first", prompt, 60)) is None
    assert engine.submit(request("second", [*prompt, 1], 60)) is None

    answers = run_to_end(engine)

    assert engine.stats().preemptions > 0
    assert answers.token_ids["first"] == expected_output(prompt, 60)
    assert answers.token_ids["second"] == expected_output([*prompt, 1], 60)


def test_cached_counts_stay_as_at_first_admission_through_preemption() -> None:
    engine = make_engine(StubRunner(block_count=7))
    for index in range(3):
        assert engine.submit(request(f"r{index}", [index] * 20, 60)) is None

    answers = run_to_end(engine)

    stats = engine.stats()
    assert stats.preemptions > 0
    assert all(finish.counts.cached == 0 for finish in answers.finishes.values())
    assert (stats.prompt_tokens, stats.prompt_tokens_cached) == (60, 0)


def test_a_short_prompt_gets_its_token_while_a_long_one_is_read() -> None:
    runner = StubRunner(block_count=300, context_tokens_max=5000)
    engine = make_engine(runner)
    assert engine.submit(request("long", [1] * 4000)) is None
    assert engine.submit(request("short", [2] * 40)) is None

    result = engine.step()

    assert chunk_ids(result) == {"short"}


def test_decoding_goes_on_while_a_long_prompt_is_read() -> None:
    engine = make_engine(StubRunner(block_count=300, context_tokens_max=5000))
    assert engine.submit(request("talking", [2] * 10, 30)) is None
    engine.step()
    assert engine.submit(request("long", [1] * 4000)) is None

    results = [engine.step() for _ in range(10)]

    assert all(chunk_ids(result) == {"talking"} for result in results)


def test_a_long_prompt_ends_under_constant_decoding() -> None:
    limits = SchedulerLimits(step_tokens_max=8, running_max=8)
    engine = make_engine(StubRunner(block_count=100), limits=limits)
    for index in range(7):
        assert engine.submit(request(f"d{index}", [index] * 2, 300)) is None
    answers = Answers()
    advance(engine, answers, 10)
    assert engine.submit(request("long", [1] * 100, 1)) is None

    advance(engine, answers, 100)

    assert "long" in answers.finishes


def test_requests_of_one_class_start_in_order_of_arrival() -> None:
    limits = SchedulerLimits(step_tokens_max=64, running_max=1)
    engine = make_engine(StubRunner(), limits=limits)
    for index in range(5):
        assert engine.submit(request(f"r{index}", [index] * (40 - 7 * index), 2)) is None

    answers = run_to_end(engine)

    assert list(answers.finishes) == [f"r{index}" for index in range(5)]


def test_batch_yields_its_place_within_one_step() -> None:
    limits = SchedulerLimits(step_tokens_max=64, running_max=2)
    engine = make_engine(StubRunner(), limits=limits)
    for index in range(2):
        assert engine.submit(request(f"b{index}", [index] * 10, 40, priority=BATCH)) is None
    answers = Answers()
    advance(engine, answers, 5)
    for index in range(2):
        assert engine.submit(request(f"i{index}", [9] * 10, 4, priority=INTERACTIVE)) is None

    result = engine.step()

    assert chunk_ids(result) == {"i0", "i1"}
    answers.take(result)
    run_to_end(engine, answers)
    assert answers.token_ids["b0"] == expected_output([0] * 10, 40)


def test_batch_yields_its_blocks_within_one_step() -> None:
    engine = make_engine(StubRunner(block_count=8))
    for index in range(2):
        assert engine.submit(request(f"b{index}", [index] * 40, 40, priority=BATCH)) is None
    answers = Answers()
    advance(engine, answers, 1)
    assert engine.submit(request("i", [9] * 100, 4, priority=INTERACTIVE)) is None

    result = engine.step()

    assert "i" in chunk_ids(result)
    answers.take(result)
    run_to_end(engine, answers)
    assert answers.token_ids["b0"] == expected_output([0] * 40, 40)


def test_batch_keeps_its_blocks_when_giving_them_up_would_not_help() -> None:
    engine = make_engine(StubRunner(block_count=8))
    assert engine.submit(request("i0", [1] * 60, 60)) is None
    engine.step()
    assert engine.submit(request("b", [2] * 20, 10, priority=BATCH)) is None
    engine.step()
    assert engine.submit(request("i1", [3] * 100, 4)) is None

    engine.step()

    assert engine.stats().preemptions == 0
    assert engine.stats().running == 2


def test_batch_is_served_in_bounded_time_under_constant_interactive_load() -> None:
    limits = SchedulerLimits(step_tokens_max=16, running_max=2, batch_wait_steps_max=10)
    engine = make_engine(StubRunner(), limits=limits)
    assert engine.submit(request("batch", [3] * 20, 5, priority=BATCH)) is None
    answers = Answers()

    for step in range(80):
        assert engine.submit(request(f"i{step}", [step % 7] * 10, 4)) is None
        answers.take(engine.step())

    assert "batch" in answers.finishes
    assert answers.token_ids["batch"] == expected_output([3] * 20, 5)


def test_aging_serves_one_batch_request_at_a_time() -> None:
    limits = SchedulerLimits(step_tokens_max=16, running_max=4, batch_wait_steps_max=4)
    runner = StubRunner(block_count=64)
    engine = make_engine(runner, limits=limits)
    for index in range(6):
        assert engine.submit(request(f"b{index}", [index] * 5, 100, priority=BATCH)) is None

    for step in range(150):
        if step % 2 == 0:
            assert engine.submit(request(f"i{step}", [step % 7] * 10, 8)) is None
        engine.step()

    busy = [
        sum(step.sequence_id.startswith("b") for step in steps)
        for steps in runner.steps[30:]
        if sum(step.sequence_id.startswith("i") for step in steps) == 3
    ]
    assert busy
    assert max(busy) <= 1


def test_batch_uses_the_room_that_interactive_requests_leave() -> None:
    engine = make_engine(StubRunner())
    assert engine.submit(request("i", [1] * 10, 20)) is None
    assert engine.submit(request("b", [2] * 10, 20, priority=BATCH)) is None

    result = engine.step()

    assert chunk_ids(result) == {"i", "b"}


def test_limits_under_which_decoding_could_starve_are_refused() -> None:
    with pytest.raises(ValueError, match="step_tokens_max"):
        SchedulerLimits(step_tokens_max=8, running_max=9)


def test_one_key_cannot_take_the_last_places_of_the_queue() -> None:
    limits = SchedulerLimits(waiting_max=10, running_max=1)
    engine = make_engine(StubRunner(), limits=limits)

    def accepted(key: bytes) -> int:
        asked = [replace(request(f"{key!r}{n}", [1]), fairness_key=key) for n in range(10)]
        return sum(engine.submit(each) is None for each in asked)

    assert [accepted(key) for key in (b"flood", b"second", b"third", b"last")] == [5, 3, 1, 1]


def test_a_key_without_a_seat_gets_one_from_a_key_with_several() -> None:
    limits = SchedulerLimits(step_tokens_max=64, running_max=3)
    engine = make_engine(StubRunner(), limits=limits)
    answers = Answers()
    for index in range(5):
        flood = replace(request(f"flood{index}", [index] * 20, 40), fairness_key=b"flood")
        assert engine.submit(flood) is None
    advance(engine, answers, 5)
    assert engine.submit(replace(request("quiet", [9] * 20, 4), fairness_key=b"quiet")) is None

    result = engine.step()

    assert "quiet" in chunk_ids(result)
    assert engine.stats().preemptions == 1
    answers.take(result)
    run_to_end(engine, answers)
    assert answers.token_ids["flood0"] == expected_output([0] * 20, 40)
    assert engine.stats().preemptions == 1


def test_batch_that_gets_no_time_keeps_its_seat_and_what_it_computed() -> None:
    clock = Clock()
    traffic_limits = SchedulerLimits(inter_token_target_ms=100.0)

    class Slow(StubRunner):
        def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
            clock.now_s += 0.002 * sum(len(step.token_ids) for step in steps)
            return super().execute(steps)

    engine = make_engine(Slow(block_count=200), limits=traffic_limits, clock=clock)
    answers = Answers()
    for index in range(4):
        assert engine.submit(request(f"b{index}", [index] * 30, 60, priority=BATCH)) is None
    advance(engine, answers, 8)
    before = len(answers.token_ids["b0"])
    assert engine.submit(request("i", list(range(90)) * 2, 2)) is None

    advance(engine, answers, 1)

    assert len(answers.token_ids["b0"]) == before
    assert (engine.stats().preemptions, engine.stats().running) == (0, 5)
    assert "i" in answers.token_ids
    run_to_end(engine, answers)
    assert answers.token_ids["b0"] == expected_output([0] * 30, 60)


def test_what_others_hold_as_well_costs_nothing_to_preempt() -> None:
    engine = make_engine(StubRunner(block_count=9), limits=SchedulerLimits(running_max=3))
    shared = [7] * 48
    answers = Answers()
    assert engine.submit(request("head", shared, 50)) is None
    advance(engine, answers, 2)
    assert engine.submit(request("alone", [3] * 24, 30)) is None
    assert engine.submit(request("sharing", [*shared, 5], 30)) is None
    advance(engine, answers, 2)
    assert engine.stats().running == 3

    while engine.stats().preemptions == 0:
        advance(engine, answers, 1)

    before = {name: len(answers.token_ids[name]) for name in ("alone", "sharing")}
    advance(engine, answers, 1)
    grown = {name for name in before if len(answers.token_ids[name]) > before[name]}
    assert grown == {"alone"}


def test_who_waits_for_an_answer_is_told_apart_from_batch_that_is_served_alike() -> None:
    limits = SchedulerLimits(running_max=1, batch_wait_steps_max=2)
    engine, answers = make_engine(StubRunner(block_count=40), limits=limits), Answers()
    assert engine.submit(request("b", [1] * 8, 40, priority=BATCH)) is None
    assert engine.stats().waiting == 1
    assert engine.stats().interactive_waiting == 0
    for name in ("i", "j"):
        assert engine.submit(request(name, [2] * 8, 20)) is None

    for _ in range(15):
        advance(engine, answers, 1)
        stats = engine.stats()
        assert (stats.running, stats.waiting) == (1, 2)
        assert stats.interactive_running + stats.interactive_waiting == 2

    run_to_end(engine, answers)
    assert (engine.stats().interactive_running, engine.stats().interactive_waiting) == (0, 0)
