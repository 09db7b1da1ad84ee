"""On a machine whose shortest step is over its time, everybody still comes to an end, and batch to
one together."""

import pytest

from inference.contracts import Priority
from tests.inference.engine.driving import Answers, Clock, make_engine, request, run_to_end
from tests.inference.engine.stub_runner import StubRunner, expected_output


@pytest.mark.parametrize("step_s", [0.05, 0.3, 5.0])
def test_a_batch_request_alone_runs_however_slow_a_step_is(step_s: float) -> None:
    clock = Clock()

    class Slow(StubRunner):
        def execute(self, steps):  # type: ignore[no-untyped-def]  # as the stub's
            clock.now_s += step_s * sum(len(step.token_ids) for step in steps)
            return super().execute(steps)

    engine = make_engine(Slow(), clock=clock)
    answers = Answers()
    engine.submit(request("teaches", [1, 2, 3], 12))
    run_to_end(engine, answers)

    engine.submit(request("bulk", [4, 5, 6], 12, priority=Priority.BATCH))
    run_to_end(engine, answers)

    assert answers.token_ids["bulk"] == expected_output([4, 5, 6], 12)


@pytest.mark.parametrize("overhead_s", [0.02, 0.15, 0.7, 3.0])
def test_batch_shares_its_steps_whatever_an_empty_one_costs(overhead_s: float) -> None:
    clock = Clock()
    steps = 0

    class Heavy(StubRunner):
        def execute(self, shares):  # type: ignore[no-untyped-def]  # as the stub's
            nonlocal steps
            steps += 1
            clock.now_s += overhead_s + 0.002 * sum(len(step.token_ids) for step in shares)
            return super().execute(shares)

    engine = make_engine(Heavy(), clock=clock)
    answers = Answers()
    engine.submit(request("teaches", list(range(40)), 12))
    run_to_end(engine, answers)
    steps = 0

    for number in range(16):
        prompt = [number, 5, 6] * 4
        engine.submit(request(f"bulk-{number}", prompt, 12, priority=Priority.BATCH))
    run_to_end(engine, answers)

    assert steps <= 16 * 12 / 4
