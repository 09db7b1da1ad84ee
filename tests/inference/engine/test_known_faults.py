"""Where other schedulers are known to have gone wrong: pools that are full, requests that resume,
prompts that wait behind others, ids that no vocabulary has."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from inference.contracts import (
    BLOCK_TOKENS,
    FinishReason,
    GenerationRequest,
    RefusalCode,
    SamplingParams,
    TokenCounts,
)
from inference.engine.engine import Engine
from inference.engine.overlapped import OverlappedEngine
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
from tests.inference.engine.stub_runner import ByteTokens, Letters, StubRunner, expected_output
from tests.inference.engine.test_overlapped import LaunchingStub

GREEDY = SamplingParams(max_tokens=40, temperature=0.0)
VOCAB_SIZE = 100


def plain(block_count: int, running_max: int) -> Engine:
    return make_engine(
        StubRunner(block_count=block_count), limits=SchedulerLimits(running_max=running_max)
    )


def overlapped(block_count: int, running_max: int) -> Engine:
    return OverlappedEngine(
        LaunchingStub(block_count=block_count),
        Letters(),
        stop_ids=(),
        limits=SchedulerLimits(running_max=running_max),
        clock=Clock(),
    )


def test_what_was_cached_stays_as_at_first_admission_however_much_a_resume_finds() -> None:
    engine = make_engine(StubRunner(block_count=11))
    shared = [9] * (2 * BLOCK_TOKENS)
    assert engine.submit(request("warming", [*shared, 1], 1)) is None
    run_to_end(engine)
    before = engine.stats()
    for index in range(4):
        assert engine.submit(request(f"r{index}", [*shared, index, index], 60)) is None

    answers = run_to_end(engine)

    after = engine.stats()
    counts = [answers.finishes[f"r{index}"].counts for index in range(4)]
    assert after.preemptions > 0
    assert counts == [TokenCounts(len(shared) + 2, len(shared), 60)] * 4
    assert after.prompt_tokens - before.prompt_tokens == 4 * (len(shared) + 2)
    assert after.prompt_tokens_cached - before.prompt_tokens_cached == 4 * len(shared)


@pytest.mark.parametrize("make", [plain, overlapped])
def test_in_the_smallest_pool_the_first_to_come_gets_a_token_in_every_step(
    make: Callable[[int, int], Engine],
) -> None:
    engine = make(5, 4)
    prompts = {f"r{index}": [index] * 20 for index in range(6)}
    for name, prompt in prompts.items():
        assert engine.submit(request(name, prompt, 60)) is None
    answers = Answers()
    oldest = list(prompts)

    while engine.has_work:
        result = engine.step()
        engine.check()
        answers.take(result)
        assert oldest[0] in chunk_ids(result)
        oldest = [name for name in oldest if name not in answers.finishes]

    assert engine.stats().preemptions > 0
    for name, prompt in prompts.items():
        assert answers.token_ids[name] == expected_output(prompt, 60)


@pytest.mark.parametrize("make", [plain, overlapped])
def test_a_storm_of_aborts_in_a_small_pool_leaves_no_block_behind(
    make: Callable[[int, int], Engine],
) -> None:
    engine = make(8, 6)
    for wave in range(40):
        for index in range(3):
            asked = request(f"{wave}/{index}", [wave % 3] * (5 + 9 * index), 30)
            assert engine.submit(replace(asked, prompts=asked.prompts * (1 + index))) is None
        for _ in range(wave % 4):
            engine.step()
            engine.check()
        for index in range(3):
            # Each way to go: before the first step, amid its prompt, its text, or preempted.
            if (wave + index) % 5:
                finish = engine.abort(f"{wave}/{index}")
                assert finish is None or finish.reason is FinishReason.CANCELLED
                engine.check()
    while engine.has_work:
        engine.step()
        engine.check()

    assert engine.stats().preemptions > 0
    assert engine.stats().blocks_used == 0
    assert engine.stats().running == engine.stats().waiting == 0


def test_penalties_are_told_the_output_apart_from_the_prompt_even_when_it_is_computed_again() -> (
    None
):
    runner = StubRunner(block_count=7)
    engine = make_engine(runner)
    sampling = SamplingParams(
        max_tokens=60, temperature=0.0, presence_penalty=1.0, repetition_penalty=1.5
    )
    prompts = {f"r{index}": (index,) * 20 for index in range(3)}
    for name, prompt in prompts.items():
        assert engine.submit(GenerationRequest(name, (prompt,), sampling)) is None
    drawn = 0
    while engine.has_work:
        engine.step()
        for step in runner.steps.pop():
            name = step.sequence_id.partition("/")[0]
            for spec in step.samples:
                drawn += 1
                assert list(spec.prompt_ids) == list(prompts[name])
                assert list(spec.output_ids) == expected_output(prompts[name], spec.position)

    assert engine.stats().preemptions > 0
    assert drawn == 180


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=4, logit_bias=((VOCAB_SIZE, 5.0),)),
        SamplingParams(max_tokens=4, logit_bias=((0, 1.0), (-1, 5.0))),
        SamplingParams(max_tokens=4, stop_token_ids=(VOCAB_SIZE,)),
        SamplingParams(max_tokens=4, stop_token_ids=(-1,)),
    ],
)
def test_the_first_id_past_the_vocabulary_is_refused_and_the_last_one_in_it_is_not(
    sampling: SamplingParams,
) -> None:
    engine = make_engine(StubRunner(vocab_size=VOCAB_SIZE))
    last = replace(sampling, logit_bias=((VOCAB_SIZE - 1, 5.0),), stop_token_ids=(VOCAB_SIZE - 1,))
    assert engine.submit(GenerationRequest("good", ((1,),), last)) is None

    refusal = engine.submit(GenerationRequest("bad", ((1,),), sampling))

    assert refusal is not None
    assert refusal.error_code == RefusalCode.INVALID_REQUEST
    assert "good" in run_to_end(engine).finishes


def test_a_request_with_one_prompt_too_many_for_the_pool_blocks_nobody() -> None:
    engine = make_engine(StubRunner(block_count=8))
    fits, does_not = (1,) * 20, (1,) * (8 * BLOCK_TOKENS - 39)

    refusal = engine.submit(GenerationRequest("huge", (fits, does_not), GREEDY))
    assert engine.submit(request("behind", [2] * 10)) is None
    answers = run_to_end(engine)

    assert refusal is not None
    assert refusal.error_code == RefusalCode.CONTEXT_LENGTH_EXCEEDED
    assert answers.token_ids["behind"] == expected_output([2] * 10, 8)


def test_an_answer_that_never_stops_ends_with_the_context() -> None:
    engine = make_engine(StubRunner(block_count=64, context_tokens_max=100), stop_ids=range(100))
    assert engine.submit(request("r", [3] * 30, 70, ignore_eos=True)) is None
    assert engine.submit(request("longer", [3] * 30, 71, ignore_eos=True)) is not None

    answers = run_to_end(engine)

    assert answers.finishes["r"].reason is FinishReason.LENGTH
    assert len(answers.token_ids["r"]) == 70


def test_a_stop_string_that_does_not_come_delays_and_cuts_nothing() -> None:
    text = b"Hello world, this is all of it."
    pieces = []
    for stop in ((), ("x" * 20,), ("y" * 256, "z" * 20)):
        runner = StubRunner(vocab_size=256, script=lambda _id, position: text[position])
        engine = make_engine(runner, texts=ByteTokens())
        assert engine.submit(request("r", [1], len(text), stop=stop)) is None
        pieces.append(run_to_end(engine).pieces["r"])

    assert pieces == [[chr(byte) for byte in text]] * 3


class Slow(StubRunner):
    """A token takes 10 ms, so that steps are bound by their time."""

    def __init__(self, clock: Clock, block_count: int) -> None:
        super().__init__(block_count=block_count, context_tokens_max=4096)
        self._clock = clock

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        self._clock.now_s += 0.01 * sum(len(step.token_ids) for step in steps)
        return super().execute(steps)


def test_a_prompt_half_read_is_read_on_while_more_decode_than_a_step_has_time_for() -> None:
    clock = Clock()
    limits = SchedulerLimits(step_tokens_max=64, running_max=16, inter_token_target_ms=50.0)
    engine = make_engine(Slow(clock, block_count=400), limits=limits, clock=clock)
    answers = Answers()
    for index in range(12):
        assert engine.submit(request(f"d{index}", [index] * 3, 2000)) is None
    assert engine.submit(request("long", [7] * 800, 1)) is None

    advance(engine, answers, 60)

    assert answers.token_ids["long"] == expected_output([7] * 800, 1)
    assert len(answers.finishes) == 1


def test_a_short_prompt_is_answered_within_few_steps_behind_prompts_of_thousands() -> None:
    clock = Clock()
    limits = SchedulerLimits(step_tokens_max=64, running_max=16, inter_token_target_ms=200.0)
    engine = make_engine(Slow(clock, block_count=800), limits=limits, clock=clock)
    answers = Answers()
    for index in range(3):
        assert engine.submit(request(f"long{index}", [index] * 3000, 2)) is None
    advance(engine, answers, 5)
    asked_at_s = clock.now_s
    assert engine.submit(request("short", [5] * 10, 2)) is None

    while "short" not in answers.token_ids:
        advance(engine, answers, 1)

    assert clock.now_s - asked_at_s < 2.0
    assert not answers.token_ids.keys() & {"long0", "long1", "long2"}
