"""A small model that guesses: its own pool, its own place in each text, and answers unchanged."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import BLOCK_TOKENS, GenerationRequest, SamplingParams
from inference.engine.drafting.draft_model import (
    CATCH_UP_TOKENS_MAX,
    DraftModel,
    VocabulariesDiffer,
)
from inference.engine.scheduling.scheduler import SchedulerLimits
from tests.inference.engine.drafting.drafters import Eager
from tests.inference.engine.driving import Answers, make_engine, request, run_to_end
from tests.inference.engine.stub_runner import StubRunner, expected_output

VOCABULARY = 100


def draft_model(runner: StubRunner) -> DraftModel:
    return DraftModel(runner, vocab_size=VOCABULARY, end_ids=())


def unreliable(seed: int, block_count: int = 64, context_tokens_max: int = 512) -> StubRunner:
    """The same model, except that some of what it says is something else."""
    drawn = random.Random(seed)
    return StubRunner(
        block_count=block_count,
        context_tokens_max=context_tokens_max,
        script=lambda _request_id, _position: (
            drawn.randrange(VOCABULARY) if drawn.random() < 0.3 else None
        ),
    )


def test_the_model_itself_as_its_draft_is_always_right() -> None:
    runner, drafts = StubRunner(), StubRunner()
    engine = make_engine(runner, drafter=Eager(draft_model(drafts)))
    for index in range(3):
        assert engine.submit(request(f"r{index}", [index, 1, 2], 33)) is None

    answers = run_to_end(engine)

    for index in range(3):
        assert answers.token_ids[f"r{index}"] == expected_output([index, 1, 2], 33)
    stats = engine.stats()
    assert stats.accepted_tokens == stats.drafted_tokens == 3 * 28
    # Each token is read once: the prompts, and what the guesses before the last one were.
    read = sum(len(step.token_ids) for steps in drafts.steps for step in steps)
    assert read <= 3 * (3 + 33)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 40), st.integers(1, 2)),
        min_size=1,
        max_size=5,
    ),
    st.integers(5, 20),
    st.integers(1, 12),
    st.integers(20, 200),
    st.integers(1, 4),
    st.integers(0, 1 << 32),
)
def test_answers_are_right_whatever_the_draft_model_has_room_for(
    asked: list[tuple[int, int, int]],
    block_count: int,
    draft_blocks: int,
    draft_context: int,
    running_max: int,
    seed: int,
) -> None:
    source = draft_model(unreliable(seed, draft_blocks, draft_context))
    engine = make_engine(
        StubRunner(block_count=block_count),
        limits=SchedulerLimits(step_tokens_max=running_max + 20, running_max=running_max),
        drafter=Eager(source),
    )
    answers = Answers()
    by_choice: dict[tuple[str, int], list[int]] = {}
    for index, (prompt, max_tokens, choices) in enumerate(asked):
        refusal = engine.submit(
            GenerationRequest(
                f"r{index}",
                ((index,) * prompt,),
                SamplingParams(max_tokens=max_tokens, temperature=0.0),
                choices=choices,
            )
        )
        if refusal is not None:
            answers.take_finish(refusal)
    for _ in range(5_000):
        if not engine.has_work:
            break
        result = engine.step()
        answers.take(result)
        for chunk in result.chunks:
            by_choice.setdefault((chunk.request_id, chunk.choice), []).extend(chunk.token_ids)
        engine.check()
        source.check()

    assert not engine.has_work
    assert source.blocks_used == 0
    for (request_id, choice), token_ids in by_choice.items():
        index = int(request_id[1:])
        prompt, max_tokens, _ = asked[index]
        assert token_ids == expected_output([index] * prompt, max_tokens, choice=choice)


def test_a_preempted_sequence_finds_its_drafts_where_it_left_them() -> None:
    drafts = StubRunner()
    engine = make_engine(StubRunner(block_count=7), drafter=Eager(draft_model(drafts)))
    for index in range(3):
        assert engine.submit(request(f"r{index}", [index] * 20, 60)) is None

    answers = run_to_end(engine)

    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.accepted_tokens == stats.drafted_tokens > 0
    for index in range(3):
        assert answers.token_ids[f"r{index}"] == expected_output([index] * 20, 60)
    read = [step for steps in drafts.steps for step in steps if step.start < 20]
    assert sum(len(step.token_ids) for step in read) == 3 * 21


def test_without_room_for_two_one_is_guessed_for() -> None:
    source = draft_model(StubRunner(block_count=4))
    engine = make_engine(StubRunner(), drafter=Eager(source))
    for name in ("a", "b"):
        assert engine.submit(request(name, [1] * 2 * BLOCK_TOKENS, 20)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["a"] == answers.token_ids["b"]
    assert engine.stats().accepted_tokens == engine.stats().drafted_tokens > 0
    assert source.blocks_used == 0


def test_room_of_sequences_that_do_not_decode_now_is_taken() -> None:
    """One is preempted and keeps its place with the draft model until another needs it."""
    source = draft_model(StubRunner(block_count=6))
    engine = make_engine(StubRunner(block_count=6), drafter=Eager(source))
    for index in range(2):
        assert engine.submit(request(f"r{index}", [index] * 30, 60)) is None

    answers = run_to_end(engine)

    assert engine.stats().preemptions > 0
    for index in range(2):
        assert answers.token_ids[f"r{index}"] == expected_output([index] * 30, 60)


def test_a_long_prompt_is_read_in_parts_while_the_answer_goes_on() -> None:
    prompt = [1] * (2 * CATCH_UP_TOKENS_MAX + 10)
    drafts = StubRunner(block_count=80, context_tokens_max=2000)
    engine = make_engine(
        StubRunner(block_count=80, context_tokens_max=2000), drafter=Eager(draft_model(drafts))
    )
    assert engine.submit(request("r", prompt, 30)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == expected_output(prompt, 30)
    assert max(len(step.token_ids) for steps in drafts.steps for step in steps) == (
        CATCH_UP_TOKENS_MAX
    )
    assert engine.stats().accepted_tokens > 20


def test_nothing_is_drafted_past_an_end_of_sequence() -> None:
    drafts = StubRunner(script=lambda _request_id, position: 9 if position == 4 else None)
    source = DraftModel(drafts, vocab_size=VOCABULARY, end_ids=(9,))
    engine = make_engine(StubRunner(), drafter=Eager(source, end_ids=(9,)))
    assert engine.submit(request("r", [1, 2], 5)) is None

    answers = run_to_end(engine)

    assert answers.token_ids["r"] == expected_output([1, 2], 5)
    assert not any(9 in step.token_ids for steps in drafts.steps for step in steps)


def test_the_same_noise_at_the_same_position() -> None:
    sampling = SamplingParams(
        max_tokens=20, temperature=0.9, top_p=0.8, seed=5, presence_penalty=1.0, logprobs=3
    )
    runner, drafts = StubRunner(), StubRunner()
    engine = make_engine(runner, drafter=Eager(draft_model(drafts)))
    assert engine.submit(GenerationRequest("r", ((1, 2),), sampling, choices=2)) is None
    run_to_end(engine)

    def noise(stub: StubRunner) -> set[tuple[float, float, int, int, int, tuple[int, ...]]]:
        return {
            (s.temperature, s.top_p, s.seed, s.choice, s.position, tuple(s.output_ids))
            for steps in stub.steps
            for step in steps
            for s in step.samples
        }

    assert noise(drafts)
    assert noise(drafts) <= noise(runner)
    assert all(s.logprobs is None for x in drafts.steps for step in x for s in step.samples)


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(VocabulariesDiffer, match="100 tokens"):
        DraftModel(StubRunner(), vocab_size=101, end_ids=())
