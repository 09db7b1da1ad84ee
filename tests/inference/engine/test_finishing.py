"""How requests end, what they are refused for, and what a failing step costs whom."""

from collections.abc import Callable

import pytest

from inference.contracts import (
    FinishReason,
    GenerationRequest,
    Priority,
    RefusalCode,
    TokenCounts,
)
from inference.engine.scheduling.scheduler import SchedulerLimits
from tests.inference.engine.driving import (
    Answers,
    Clock,
    advance,
    make_engine,
    request,
    run_to_end,
)
from tests.inference.engine.stub_runner import ByteTokens, StubRunner, expected_output

EOS = 300
VOCAB_SIZE = 400


def saying(data: bytes) -> StubRunner:
    """A model that says these bytes and then its end-of-sequence token, for ever."""

    def script(_request_id: str, position: int) -> int:
        return data[position] if position < len(data) else EOS

    return StubRunner(vocab_size=VOCAB_SIZE, script=script)


def answer(
    data: bytes,
    *,
    max_tokens: int = 50,
    stop: tuple[str, ...] = (),
    stop_token_ids: tuple[int, ...] = (),
    ignore_eos: bool = False,
) -> Answers:
    engine = make_engine(saying(data), texts=ByteTokens(), stop_ids=(EOS,))
    asked = request(
        "r",
        [1, 2, 3],
        max_tokens,
        stop=stop,
        stop_token_ids=stop_token_ids,
        ignore_eos=ignore_eos,
    )
    assert engine.submit(asked) is None
    return run_to_end(engine)


def test_the_end_token_is_counted_and_yields_no_text() -> None:
    answers = answer(b"Paris")

    finish = answers.finishes["r"]
    assert finish.reason is FinishReason.STOP
    assert finish.counts == finish.sent == TokenCounts(prompt=3, cached=0, completion=6)
    assert answers.text("r") == "Paris"
    assert answers.token_ids["r"] == [*b"Paris", EOS]


def test_reaching_max_tokens_is_length() -> None:
    answers = answer(b"Paris is nice", max_tokens=8)

    assert answers.finishes["r"].reason is FinishReason.LENGTH
    assert answers.finishes["r"].counts.completion == 8
    assert answers.text("r") == "Paris is"


def test_without_an_end_token_output_ends_at_max_tokens() -> None:
    answers = answer(b"", max_tokens=40, ignore_eos=True)

    assert answers.finishes["r"].reason is FinishReason.LENGTH
    assert answers.token_ids["r"] == [EOS] * 40
    assert answers.text("r") == ""


def test_an_end_token_at_max_tokens_is_stop() -> None:
    answers = answer(b"Paris", max_tokens=6)

    assert answers.finishes["r"].reason is FinishReason.STOP


def test_a_stop_token_ends_the_output_and_is_no_text() -> None:
    answers = answer(b"Paris!", stop_token_ids=(ord("!"),))

    assert answers.finishes["r"].reason is FinishReason.STOP
    assert answers.text("r") == "Paris"
    assert answers.finishes["r"].counts.completion == 6


def test_a_stop_string_across_tokens_is_cut_and_counted() -> None:
    answers = answer(b"University of Nowhere", stop=("ty of No",))

    finish = answers.finishes["r"]
    assert finish.reason is FinishReason.STOP
    assert answers.text("r") == "Universi"
    assert finish.counts.completion == len("University of No")
    assert "".join(answers.pieces["r"]) == "Universi"


def test_text_held_back_for_a_stop_comes_with_the_last_chunk() -> None:
    answers = answer(b"so far\n", stop=("\n\n",))

    assert answers.pieces["r"] == ["s", "o", " ", "f", "a", "r", "", "\n"]


def test_no_replacement_character_before_bytes_are_truly_invalid() -> None:
    text = "😀👍🏽漢字é"

    answers = answer(text.encode())

    assert answers.text("r") == text
    assert all("\ufffd" not in piece for piece in answers.pieces["r"])


def test_output_cut_inside_a_character_shows_one_replacement_at_the_end() -> None:
    answers = answer("a漢".encode(), max_tokens=3)

    assert answers.pieces["r"] == ["a", "", "\ufffd"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request("r", []), RefusalCode.INVALID_REQUEST),
        (request("r", [1, VOCAB_SIZE]), RefusalCode.INVALID_REQUEST),
        (request("r", [-1]), RefusalCode.INVALID_REQUEST),
        (request("r", [1], stop_token_ids=(60_000,)), RefusalCode.INVALID_REQUEST),
        (request("r", [1] * 100, 29), RefusalCode.CONTEXT_LENGTH_EXCEEDED),
        (request("r", [1], 10**9), RefusalCode.CONTEXT_LENGTH_EXCEEDED),
    ],
)
def test_what_can_never_run_is_refused_at_the_door(
    asked: GenerationRequest, code: RefusalCode
) -> None:
    runner = StubRunner(vocab_size=VOCAB_SIZE, block_count=8, context_tokens_max=512)
    engine = make_engine(runner)

    finish = engine.submit(asked)

    assert finish is not None
    assert (finish.reason, finish.error_code) == (FinishReason.REFUSED, code)
    assert finish.counts == TokenCounts()
    assert not engine.has_work


def test_the_longest_request_that_fits_the_pool_runs_to_its_end() -> None:
    engine = make_engine(StubRunner(block_count=8))
    assert engine.submit(request("r", [1] * 100, 28)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == expected_output([1] * 100, 28)


def test_an_id_in_progress_is_refused_and_its_first_bearer_goes_on() -> None:
    engine = make_engine(StubRunner())
    assert engine.submit(request("r", [1, 2])) is None

    finish = engine.submit(request("r", [3, 4]))

    assert finish is not None
    assert finish.error_code == RefusalCode.DUPLICATE_REQUEST_ID
    assert run_to_end(engine).token_ids["r"] == expected_output([1, 2], 8)


def test_a_full_queue_refuses_its_own_class_only() -> None:
    limits = SchedulerLimits(waiting_max=3)
    engine = make_engine(StubRunner(), limits=limits)
    for index in range(2):
        assert engine.submit(request(f"b{index}", [1], priority=Priority.BATCH)) is None

    refused = engine.submit(request("b2", [1], priority=Priority.BATCH))
    admitted = engine.submit(request("i", [1]))

    assert refused is not None
    assert refused.error_code == RefusalCode.QUEUE_FULL
    assert admitted is None


def test_a_failing_step_ends_its_requests_and_the_engine_goes_on() -> None:
    runner = StubRunner()
    limits = SchedulerLimits(step_tokens_max=64, running_max=1)
    engine = make_engine(runner, limits=limits)
    assert engine.submit(request("hit", [1, 2])) is None
    assert engine.submit(request("spared", [3, 4])) is None
    answers = Answers()
    advance(engine, answers, 3)
    runner.fail_next = True

    run_to_end(engine, answers)

    failed = answers.finishes["hit"]
    assert (failed.reason, failed.error_code) == (FinishReason.ERROR, "engine_error")
    assert failed.counts.completion == 3
    assert answers.finishes["spared"].reason is FinishReason.LENGTH
    assert engine.stats().finished["error"] == 1


@pytest.mark.parametrize("wrong", [lambda _id, _position: VOCAB_SIZE, lambda _id, _position: -1])
def test_a_token_outside_the_vocabulary_fails_the_request_not_the_engine(
    wrong: Callable[[str, int], int],
) -> None:
    engine = make_engine(StubRunner(vocab_size=VOCAB_SIZE, script=wrong), texts=ByteTokens())
    assert engine.submit(request("r", [1])) is None

    answers = run_to_end(engine)

    assert answers.finishes["r"].reason is FinishReason.ERROR


def test_a_failed_step_leaves_nothing_in_the_prefix_cache() -> None:
    runner = StubRunner()
    engine = make_engine(runner)
    prompt = [4] * 40
    runner.fail_next = True
    assert engine.submit(request("failed", prompt)) is None
    run_to_end(engine)
    assert engine.submit(request("again", prompt)) is None

    answers = run_to_end(engine)

    assert answers.finishes["again"].counts.cached == 0


def test_an_abort_counts_what_was_generated_and_frees_the_blocks() -> None:
    engine = make_engine(StubRunner())
    assert engine.submit(request("r", [1] * 20, 100)) is None
    answers = Answers()
    advance(engine, answers, 5)

    finish = engine.abort("r")

    assert finish is not None
    assert finish.reason is FinishReason.CANCELLED
    assert finish.counts == TokenCounts(prompt=20, cached=0, completion=5)
    assert engine.stats().blocks_used == 0
    assert engine.abort("r") is None


def test_a_request_aborted_while_it_waits_used_nothing() -> None:
    engine = make_engine(StubRunner())
    assert engine.submit(request("r", [1] * 20)) is None

    finish = engine.abort("r")

    assert finish is not None
    assert finish.counts == TokenCounts()
    engine.check()


def test_timings_say_where_the_time_went() -> None:
    clock = Clock()
    engine = make_engine(StubRunner(), clock=clock)
    assert engine.submit(request("r", [1], 2)) is None
    clock.now_s += 0.5
    answers = Answers()
    advance(engine, answers, 1)
    clock.now_s += 0.25
    advance(engine, answers, 1)

    timings = answers.finishes["r"].timings

    assert (timings.queue_ms, timings.prefill_ms, timings.decode_ms) == (500, 0, 250)
