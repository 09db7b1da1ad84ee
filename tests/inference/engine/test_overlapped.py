"""Launching a step before the last one is read changes no answer, whatever ends in between."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import FinishReason, GenerationRequest, SamplingParams
from inference.engine.overlapped import OverlappedEngine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import PENDING, SequenceStep, StepOutput
from tests.inference.engine.driving import Answers, Clock, request, run_to_end
from tests.inference.engine.stub_runner import Letters, StubRunner, expected_output


class LaunchingStub(StubRunner):
    """Computes when launched; what a step drew is known to the runner before anybody reads it."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # ints only, the script keeps default
        self.unread = 0
        self._last: dict[str, int] = {}

    def launch(self, steps: Sequence[SequenceStep]) -> "_Launched":
        self.unread += 1
        filled = [
            SequenceStep(
                step.sequence_id,
                [self._last[step.sequence_id] if t == PENDING else t for t in step.token_ids],
                step.start,
                list(step.block_table),
                step.samples,
                step.pool,
            )
            for step in steps
        ]
        try:
            outputs = self.execute(filled)
        except RuntimeError as error:
            return _Launched(self, error)
        for step, output in zip(filled, outputs, strict=True):
            if output.drawn:
                self._last[step.sequence_id] = output.drawn[-1].token_id
        return _Launched(self, outputs)


class _Launched:
    def __init__(self, stub: LaunchingStub, outcome: list[StepOutput] | RuntimeError) -> None:
        self._stub = stub
        self._outcome = outcome

    def outputs(self) -> list[StepOutput]:
        self._stub.unread -= 1
        if isinstance(self._outcome, RuntimeError):
            raise self._outcome
        return self._outcome


def make(
    runner: LaunchingStub, *, stop_ids: Sequence[int] = (), running_max: int = 64
) -> OverlappedEngine:
    return OverlappedEngine(
        runner,
        Letters(),
        stop_ids=stop_ids,
        limits=SchedulerLimits(running_max=running_max),
        clock=Clock(),
    )


def test_steady_decoding_runs_one_step_ahead() -> None:
    runner = LaunchingStub()
    engine = make(runner)
    for index in range(3):
        engine.submit(request(f"r{index}", [index, 5], 20))

    answers = run_to_end(engine)

    for index in range(3):
        assert answers.token_ids[f"r{index}"] == expected_output([index, 5], 20)
    assert engine.steps_ahead == 19
    assert len(runner.steps) == 20
    assert runner.unread == 0


def test_an_answer_that_stops_leaves_its_neighbours_alone() -> None:
    runner = LaunchingStub()
    output = expected_output([1, 5], 20)
    stop_id = output[7]
    engine = make(runner, stop_ids=[stop_id])
    engine.submit(request("stops", [1, 5], 20))
    engine.submit(request("goes-on", [2, 5], 20, ignore_eos=True))

    answers = run_to_end(engine)

    cut = output.index(stop_id) + 1
    assert answers.token_ids["stops"] == output[:cut]
    assert answers.finishes["stops"].reason is FinishReason.STOP
    assert answers.token_ids["goes-on"] == expected_output([2, 5], 20)


def test_a_failed_launch_is_computed_again() -> None:
    runner = LaunchingStub()
    engine = make(runner)
    engine.submit(request("r", [1, 5], 12))
    answers = Answers()
    for _ in range(4):
        answers.take(engine.step())
    runner.fail_next = True

    run_to_end(engine, answers)

    assert answers.token_ids["r"] == expected_output([1, 5], 12)


def test_what_depends_on_its_own_tokens_is_not_run_ahead() -> None:
    runner = LaunchingStub()
    engine = make(runner)
    sampling = SamplingParams(max_tokens=9, temperature=0.0, presence_penalty=1.0)
    engine.submit(GenerationRequest("r", ((1, 5),), sampling))

    run_to_end(engine)

    assert engine.steps_ahead == 0
    outputs = [s.samples[0].output_ids for steps in runner.steps for s in steps if s.samples]
    assert [len(ids) for ids in outputs] == list(range(9))


@settings(max_examples=60)
@given(st.data())
def test_any_mixture_answers_as_without_overlap(data: st.DataObject) -> None:
    runner = LaunchingStub(block_count=data.draw(st.integers(12, 40)))
    engine = make(runner, running_max=data.draw(st.integers(1, 6)))
    answers = Answers()
    asked: dict[str, tuple[list[int], int]] = {}
    aborted: set[str] = set()
    for index in range(data.draw(st.integers(1, 8))):
        prompt = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=40))
        tokens = data.draw(st.integers(1, 30))
        asked[f"r{index}"] = prompt, tokens
        assert engine.submit(request(f"r{index}", prompt, tokens)) is None
        for _ in range(data.draw(st.integers(0, 12))):
            answers.take(engine.step())
            engine.check()
        victim = data.draw(st.sampled_from([None, *asked]))
        finish = engine.abort(victim) if victim else None
        if finish is not None:
            answers.take_finish(finish)
            aborted.add(finish.request_id)
    run_to_end(engine, answers)

    for request_id, (prompt, tokens) in asked.items():
        ids = answers.token_ids.get(request_id, [])
        expected = expected_output(prompt, tokens)
        assert ids == (expected[: len(ids)] if request_id in aborted else expected)


@pytest.mark.parametrize("choices", [2, 4])
def test_choices_start_while_their_leader_runs_ahead(choices: int) -> None:
    engine = make(LaunchingStub())
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    engine.submit(GenerationRequest("n", ((1, 2, 3),), sampling, choices=choices))

    tokens: dict[int, list[int]] = {choice: [] for choice in range(choices)}
    while engine.has_work:
        for chunk in engine.step().chunks:
            tokens[chunk.choice] += chunk.token_ids
        engine.check()

    for choice in range(choices):
        assert tokens[choice] == expected_output([1, 2, 3], 6, choice=choice)
