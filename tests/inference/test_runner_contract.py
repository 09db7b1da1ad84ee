"""The runner keeps its contract and refuses weights that are not what the bundle says."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from inference.contracts import BLOCK_TOKENS
from inference.engine.runner import load_runner
from inference.engine.step import Runner, SampleSpec, SequenceStep, StepOutput
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.prompt import ChatMessage, PromptEncoder
from inference.weights.checkpoint import CheckpointInvalid
from tests.inference.decoding import GREEDY, Decoding, decode, scattered_blocks

BLOCKS = 200


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner:
    return load_runner(bundle, pool_tokens=BLOCKS * BLOCK_TOKENS + 5, threads=1, device="cpu")


@pytest.fixture(scope="module")
def prompts(bundle: Bundle) -> list[list[int]]:
    encoder = PromptEncoder(bundle)
    questions = ("Tell me a story.", "Name a colour.", "Why?", "Sing of the sea and the stars.")
    return [encoder.encode_chat([ChatMessage("user", question)]) for question in questions]


def sampled(prompt: list[int], index: int, spec: SampleSpec, limit: int = 12) -> Decoding:
    return Decoding(list(prompt), scattered_blocks(index, 10, 8), limit, spec)


def test_the_pool_is_rounded_down_to_blocks(runner: Runner, bundle: Bundle) -> None:
    assert runner.block_count == BLOCKS
    assert runner.vocab_size == bundle.vocab_size
    assert runner.context_tokens_max == bundle.context_tokens_max
    assert bundle.weights_sha256.encode() in runner.cache_key


def test_no_steps_make_no_tokens(runner: Runner) -> None:
    assert runner.execute([]) == []


def test_only_what_asks_for_a_token_gets_one(runner: Runner, prompts: list[list[int]]) -> None:
    steps = [
        SequenceStep("chunk", prompts[0][:20], 0, [0, 1]),
        SequenceStep("whole", prompts[1], 0, [2, 3, 4], (GREEDY,)),
        SequenceStep("other chunk", prompts[2][:3], 0, [5]),
    ]

    outputs = runner.execute(steps)

    assert [len(output.drawn) for output in outputs] == [0, 1, 0]
    assert [output.pooled for output in outputs] == [(), (), ()]


def test_a_step_without_samples_only_fills_blocks(runner: Runner, prompts: list[list[int]]) -> None:
    prompt, table = prompts[0], [9, 7, 8]
    [expected] = runner.execute([SequenceStep("once", prompt, 0, [1, 2, 3], (GREEDY,))])
    filled = runner.execute([SequenceStep("twice", prompt[:-1], 0, table)])

    drawn = runner.execute([SequenceStep("twice", prompt[-1:], len(prompt) - 1, table, (GREEDY,))])

    assert filled == [StepOutput()]
    assert drawn == [expected]


def test_drafted_tokens_are_followed_by_what_decoding_would_draw(
    runner: Runner, prompts: list[list[int]]
) -> None:
    prompt, table = prompts[1], [1, 2, 3, 4]
    plain = sampled(prompt, 0, GREEDY, limit=4)
    decode(runner, [plain])
    drafted = prompt + plain.output[:3]

    [output] = runner.execute([SequenceStep("drafted", drafted, 0, table, (GREEDY,) * 4)])

    assert [drawn.token_id for drawn in output.drawn] == plain.output


def test_pooling_sums_the_same_states_whole_or_in_pieces(
    runner: Runner, prompts: list[list[int]]
) -> None:
    prompt, table = prompts[0], [3, 1, 2]
    [whole] = runner.execute([SequenceStep("whole", prompt, 0, table, pool=True)])

    pieces = [
        runner.execute([SequenceStep("piece", prompt[start:end], start, table, pool=True)])[0]
        for start, end in ((0, 7), (7, 8), (8, len(prompt)))
    ]

    summed = [sum(parts) for parts in zip(*(piece.pooled for piece in pieces), strict=True)]
    assert whole.drawn == ()
    assert summed == pytest.approx(list(whole.pooled), abs=2e-3)


def test_a_seeded_answer_is_the_same_in_any_company(
    runner: Runner, prompts: list[list[int]]
) -> None:
    seeded = SampleSpec(temperature=0.9, top_p=0.95, seed=1234)
    alone = sampled(prompts[0], 0, seeded)
    decode(runner, [alone])
    accompanied = sampled(prompts[0], 5, seeded)
    company = [
        sampled(prompts[1], 0, GREEDY),
        sampled(prompts[2], 1, dataclasses.replace(seeded, seed=77)),
        accompanied,
        sampled(prompts[3], 2, dataclasses.replace(seeded, temperature=2.0, top_p=1.0)),
    ]

    decode(runner, company)

    assert accompanied.output == alone.output


def test_a_seeded_answer_survives_being_recomputed(
    runner: Runner, prompts: list[list[int]]
) -> None:
    seeded = SampleSpec(seed=99)
    undisturbed = sampled(prompts[3], 0, seeded)
    decode(runner, [undisturbed])
    preempted = sampled(prompts[3], 1, seeded, limit=5)
    decode(runner, [preempted])
    preempted.uncomputed = prompts[3] + preempted.output
    preempted.computed, preempted.limit = 0, 12
    preempted.blocks = scattered_blocks(2, 10, 8)

    decode(runner, [preempted], chunk_tokens=11)

    assert preempted.output == undisturbed.output


def test_different_seeds_give_different_answers(runner: Runner, prompts: list[list[int]]) -> None:
    specs = [SampleSpec(seed=seed) for seed in range(4)]
    decodings = [sampled(prompts[0], index, spec) for index, spec in enumerate(specs)]

    decode(runner, decodings)

    assert len({tuple(decoding.output) for decoding in decodings}) == 4


@pytest.mark.parametrize(
    "step",
    [
        SequenceStep("no tokens", [], 0, [0]),
        SequenceStep("table too short", [5] * 17, 0, [0]),
        SequenceStep("past the context", [5], 8192, list(range(200)) * 3, (GREEDY,)),
    ],
    ids=lambda step: step.sequence_id,
)
def test_an_impossible_step_is_an_error(runner: Runner, step: SequenceStep) -> None:
    with pytest.raises(AssertionError):
        runner.execute([step])


def test_altered_weights_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(bundle.folder, tmp_path / "bundle")
    altered = dataclasses.replace(bundle, folder=tmp_path / "bundle")
    with (altered.folder / altered.weights_file).open("ab") as file:
        file.write(b"more")

    with pytest.raises(CheckpointInvalid, match="not the weights"):
        load_runner(altered, pool_tokens=64, threads=1, device="cpu")


def test_missing_weights_are_named(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match=r"model\.gguf"):
        load_runner(
            dataclasses.replace(bundle, folder=tmp_path), pool_tokens=64, threads=1, device="cpu"
        )


@pytest.mark.parametrize(
    ("pool_tokens", "threads", "device"), [(15, 1, "cpu"), (64, 0, "cpu"), (64, 1, "tpu")]
)
def test_nonsense_is_refused_before_loading(
    bundle: Bundle, pool_tokens: int, threads: int, device: str
) -> None:
    with pytest.raises(ValueError, match=r"at least one|not auto"):
        load_runner(bundle, pool_tokens=pool_tokens, threads=threads, device=device)
