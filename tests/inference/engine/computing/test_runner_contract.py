"""The runner keeps its contract and refuses weights that are not what the bundle says."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.capacity import MEMORY_SHARE, POOL_TOKENS_MAX, available_bytes
from inference.engine.computing.runner import TorchRunner, load_runner, resolved_formats
from inference.engine.step import SampleSpec, SequenceStep, StepOutput
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.prompt import ChatMessage, PromptEncoder
from inference.weights.checkpoint import CheckpointInvalid
from tests.inference.engine.computing.decoding import GREEDY, Decoding, decode, scattered_blocks

BLOCKS = 200


@pytest.fixture(
    scope="module",
    params=[("float32", "float32"), ("int8", "int8"), ("int4", "int8")],
    ids="/".join,
)
def runner(bundle: Bundle, request: pytest.FixtureRequest) -> TorchRunner:
    weight_format, kv_format = request.param
    return load_runner(
        bundle,
        pool_tokens=BLOCKS * BLOCK_TOKENS + 5,
        threads=1,
        device="cpu",
        weight_format=weight_format,
        kv_format=kv_format,
        # Levels are few: what recomputing a prompt in other pieces rounds otherwise may show.
        batch_invariant=weight_format != "float32",
    )


@pytest.fixture(scope="module")
def prompts(bundle: Bundle) -> list[list[int]]:
    encoder = PromptEncoder(bundle)
    questions = ("Tell me a story.", "Name a colour.", "Why?", "Sing of the sea and the stars.")
    return [encoder.encode_chat([ChatMessage("user", question)]) for question in questions]


def sampled(prompt: list[int], index: int, spec: SampleSpec, limit: int = 12) -> Decoding:
    return Decoding(list(prompt), scattered_blocks(index, 10, 8), limit, spec)


def test_the_pool_is_rounded_down_to_blocks(runner: TorchRunner, bundle: Bundle) -> None:
    assert runner.block_count == BLOCKS
    assert runner.vocab_size == bundle.vocab_size
    assert runner.context_tokens_max == bundle.context_tokens_max
    assert bundle.weights_sha256.encode() in runner.cache_key


def test_a_runner_knows_what_it_takes(runner: TorchRunner, bundle: Bundle) -> None:
    memory = runner.memory

    assert memory.blocks == BLOCKS
    assert memory.pool_bytes == BLOCKS * memory.block_bytes
    assert memory.weight_bytes < 660e6, "134.5 million weights, and the embedding as a head again"


def test_no_steps_make_no_tokens(runner: TorchRunner) -> None:
    assert runner.execute([]) == []


def test_only_what_asks_for_a_token_gets_one(runner: TorchRunner, prompts: list[list[int]]) -> None:
    steps = [
        SequenceStep("chunk", prompts[0][:20], 0, [0, 1]),
        SequenceStep("whole", prompts[1], 0, [2, 3, 4], (GREEDY,)),
        SequenceStep("other chunk", prompts[2][:3], 0, [5]),
    ]

    outputs = runner.execute(steps)

    assert [len(output.drawn) for output in outputs] == [0, 1, 0]
    assert [output.pooled for output in outputs] == [(), (), ()]


def test_a_step_without_samples_only_fills_blocks(
    runner: TorchRunner, prompts: list[list[int]]
) -> None:
    prompt, table = prompts[0], [9, 7, 8]
    [expected] = runner.execute([SequenceStep("once", prompt, 0, [1, 2, 3], (GREEDY,))])
    filled = runner.execute([SequenceStep("twice", prompt[:-1], 0, table)])

    drawn = runner.execute([SequenceStep("twice", prompt[-1:], len(prompt) - 1, table, (GREEDY,))])

    assert filled == [StepOutput()]
    assert drawn == [expected]


def test_drafted_tokens_are_followed_by_what_decoding_would_draw(
    runner: TorchRunner, prompts: list[list[int]]
) -> None:
    prompt, table = prompts[1], [1, 2, 3, 4]
    plain = sampled(prompt, 0, GREEDY, limit=4)
    decode(runner, [plain])
    drafted = prompt + plain.output[:3]

    [output] = runner.execute([SequenceStep("drafted", drafted, 0, table, (GREEDY,) * 4)])

    assert [drawn.token_id for drawn in output.drawn] == plain.output


def test_pooling_sums_the_same_states_whole_or_in_pieces(
    runner: TorchRunner, prompts: list[list[int]]
) -> None:
    prompt, table = prompts[0], [3, 1, 2]
    [whole] = runner.execute([SequenceStep("whole", prompt, 0, table, pool=True)])

    pieces = [
        runner.execute([SequenceStep("piece", prompt[start:end], start, table, pool=True)])[0]
        for start, end in ((0, 7), (7, 8), (8, len(prompt)))
    ]

    expected = torch.tensor(whole.pooled)
    summed = torch.tensor([piece.pooled for piece in pieces]).sum(0)
    # Pieces add up in another order, which formats with few levels make more of.
    error_max = 1e-5 if b":float32:float32" in runner.cache_key else 0.05
    assert whole.drawn == ()
    assert float((summed - expected).norm() / expected.norm()) < error_max


def test_a_seeded_answer_is_the_same_in_any_company(
    runner: TorchRunner, prompts: list[list[int]]
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
    runner: TorchRunner, prompts: list[list[int]]
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


def test_different_seeds_give_different_answers(
    runner: TorchRunner, prompts: list[list[int]]
) -> None:
    specs = [SampleSpec(seed=seed) for seed in range(4)]
    decodings = [sampled(prompts[0], index, spec) for index, spec in enumerate(specs)]

    decode(runner, decodings)

    assert len({tuple(decoding.output) for decoding in decodings}) == 4


def test_a_step_is_bit_for_bit_the_same_in_any_company(
    runner: TorchRunner, prompts: list[list[int]]
) -> None:
    scored = SampleSpec(temperature=0.0, logprobs=5)
    tables = [[index * 8 + offset for offset in range(8)] for index in range(len(prompts))]
    for prompt, table in zip(prompts, tables, strict=True):
        runner.execute([SequenceStep("prompt", prompt[:-1], 0, table)])
    steps = [
        SequenceStep("decode", prompt[-1:], len(prompt) - 1, table, (scored,))
        for prompt, table in zip(prompts, tables, strict=True)
    ]

    together = runner.execute(steps)
    alone = [runner.execute([step])[0] for step in steps]

    assert together == alone


@pytest.mark.parametrize(
    "step",
    [
        SequenceStep("no tokens", [], 0, [0]),
        SequenceStep("table too short", [5] * 17, 0, [0]),
        SequenceStep("past the context", [5], 8192, list(range(200)) * 3, (GREEDY,)),
    ],
    ids=lambda step: step.sequence_id,
)
def test_an_impossible_step_is_an_error(runner: TorchRunner, step: SequenceStep) -> None:
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


@pytest.mark.parametrize(
    ("weight_format", "kv_format", "message"),
    [
        ("int5", "auto", "int5"),
        ("auto", "float8", "over float8 KV"),
    ],
)
def test_formats_the_cpu_does_not_have_are_refused_before_loading(
    bundle: Bundle, weight_format: str, kv_format: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_runner(
            bundle,
            pool_tokens=64,
            threads=1,
            device="cpu",
            weight_format=weight_format,
            kv_format=kv_format,
        )


def test_other_formats_have_another_cache() -> None:
    """Blocks computed with other weights or stored otherwise are other blocks."""
    names = {
        resolved_formats(weights, kv, "cpu").names
        for weights in ("float32", "float16", "int8", "int4")
        for kv in ("float32", "int8")
    }

    assert len(names) == 8


def test_a_pool_takes_its_share_of_the_memory_left(bundle: Bundle) -> None:
    runner = load_runner(bundle, pool_tokens=None, threads=1, device="cpu", weight_format="int4")

    memory = runner.memory
    assert memory.pool_bytes <= MEMORY_SHARE["cpu"] * (available_bytes() + 2**30)
    assert 8192 // BLOCK_TOKENS <= memory.blocks <= POOL_TOKENS_MAX // BLOCK_TOKENS
