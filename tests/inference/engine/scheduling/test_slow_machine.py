"""On a machine whose shortest step is over its time, everybody still comes to an end."""

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
