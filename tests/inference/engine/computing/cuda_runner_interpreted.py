"""Steps of toy models through the runner for CUDA, its kernels interpreted on the CPU.

Prints as JSON, for each case, where it differs from the runner for the CPU.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.cuda_runner import CudaRunner
from inference.engine.computing.runner import TorchRunner
from inference.engine.computing.sampler import NothingAllowed
from inference.engine.engine import Engine
from inference.engine.overlapped import OverlappedEngine
from inference.engine.scheduling.scheduler import SchedulerLimits
from inference.engine.step import PENDING, Drawn, SampleSpec, SequenceStep, StepOutput
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.step_tensors import KvFormat, KvPool
from inference.weights.open_checkpoint import open_checkpoint
from kernels.operations import Operations
from kernels.operations_cpu import CpuOperations
from kernels.operations_triton import TritonOperations
from tests.inference.engine.computing.decoding import GREEDY, Decoding, decode, scattered_blocks
from tests.inference.engine.computing.host_device import HostDevice
from tests.inference.engine.driving import Clock, request, run_to_end
from tests.inference.engine.stub_runner import Letters
from tests.inference.models.toy_families import TOYS, VOCABULARY, write_folder

BLOCKS = 24
RUNNING_MAX = 4
"""Graphs of 1, 2 and 4 rows."""
CPU = torch.device("cpu")


@dataclass
class Pair:
    """The same model over two pools."""

    plain: TorchRunner
    cuda: CudaRunner
    device: HostDevice
    pools: tuple[KvPool, KvPool]

    def differences(self, steps: Sequence[SequenceStep]) -> list[str]:
        """Where the two answer one step differently."""
        return compared(self.cuda.execute(steps), self.plain.execute(steps))

    def pool_differences(self, tolerance: float = 1e-4) -> list[str]:
        """Where the pools differ, what nobody wrote included."""
        layers = range(3)
        apart = max(
            float((getattr(one, name).float() - getattr(other, name).float()).abs().max())
            for one, other in ((self.pools[0].layer(i), self.pools[1].layer(i)) for i in layers)
            for name in ("keys", "values")
        )
        return [f"pools are {apart} apart"] if apart > tolerance else []


def pair(
    folder: Path,
    name: str,
    kv_format: KvFormat = KvFormat.FLOAT32,
    *,
    cuda_format: KvFormat | None = None,
    cuda_dtype: torch.dtype = torch.float32,
) -> Pair:
    """Both runners of a toy model; the one for CUDA as the one for the CPU unless told."""
    write_folder(folder / name, next(toy for toy in TOYS if toy.name == name))

    def parts(
        operations: Operations, dtype: torch.dtype, kv_format: KvFormat
    ) -> tuple[Decoder, KvPool]:
        model = load_model(
            open_checkpoint(folder / name), operations=operations, device=CPU, dtype=dtype
        )
        pool = KvPool(
            layers=model.config.layers,
            kv_heads=model.config.kv_heads,
            blocks=BLOCKS,
            block_tokens=BLOCK_TOKENS,
            head_size=model.config.head_size,
            dtype=kv_format.dtype,
            device=CPU,
        )
        return model, pool

    plain_model, plain_pool = parts(CpuOperations(), torch.float32, kv_format)
    cuda_model, cuda_pool = parts(TritonOperations(), cuda_dtype, cuda_format or kv_format)
    device = HostDevice()
    return Pair(
        TorchRunner(plain_model, plain_pool, cache_key=b""),
        CudaRunner(cuda_model, cuda_pool, cache_key=b"", running_max=RUNNING_MAX, device=device),
        device,
        (plain_pool, cuda_pool),
    )


def compared(found: Sequence[StepOutput], expected: Sequence[StepOutput]) -> list[str]:
    """Tokens exactly, log probabilities and sums nearly."""
    differences = []
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        ids = [[drawn.token_id for drawn in output.drawn] for output in (one, other)]
        if ids[0] != ids[1]:
            differences.append(f"step {index} drew {ids[0]} instead of {ids[1]}")
        if not near(one.pooled, other.pooled):
            differences.append(f"step {index} is pooled otherwise")
        differences += [
            f"step {index}: {mine.logprob} instead of {theirs.logprob}"
            for mine, theirs in zip(one.drawn, other.drawn, strict=True)
            if not same_logprob(mine, theirs)
        ]
    return differences


def same_logprob(found: Drawn, expected: Drawn) -> bool:
    if found.logprob is None or expected.logprob is None:
        return found.logprob is expected.logprob
    one, other = found.logprob, expected.logprob
    return (
        one.token_id == other.token_id
        and [token_id for token_id, _ in one.top] == [token_id for token_id, _ in other.top]
        and near(
            [one.logprob, *(value for _, value in one.top)],
            [other.logprob, *(value for _, value in other.top)],
        )
    )


def near(found: Sequence[float], expected: Sequence[float]) -> bool:
    return torch.allclose(
        torch.tensor(found, dtype=torch.float64),
        torch.tensor(expected, dtype=torch.float64),
        rtol=1e-4,
        atol=1e-3,
    )


def prompt(length: int, first: int = 0) -> list[int]:
    """Some tokens, others for another `first`."""
    return [(7 * index + 13 * first + 3) % VOCABULARY for index in range(length)]


def mixtures(folder: Path) -> dict[str, list[str]]:
    """Chunks, prompts, decodes, drafts and pooled sequences beside each other, in any graph."""
    two = pair(folder, "mistral")
    long, short, text = prompt(37, 1), prompt(5, 2), prompt(19, 3)
    tables = [scattered_blocks(index, 4, 5) for index in range(5)]
    chunks = [
        SequenceStep("long", long[:20], 0, tables[0]),
        SequenceStep("short", short, 0, tables[1], (GREEDY,)),
        SequenceStep("text", text[:7], 0, tables[2], pool=True),
    ]
    rest = [
        SequenceStep("long", long[20:], 20, tables[0], (GREEDY,)),
        SequenceStep("drafted", prompt(9, 4), 0, tables[3], (GREEDY,) * 4),
        SequenceStep("text", text[7:], 7, tables[2], pool=True),
        SequenceStep("short", [11], 5, tables[1], (GREEDY,)),
    ]
    found = {
        "nothing": two.differences([]),
        "one chunk": two.differences([replace(chunks[0], token_ids=long[:3])]),
        "chunks": two.differences(chunks),
        "the rest": two.differences(rest),
    }
    assert two.device.replayed == 0
    decodes = [
        SequenceStep("long", [9], 37, tables[0], (GREEDY,)),
        SequenceStep("text", [4], 19, tables[2]),
        SequenceStep("short", [8], 6, tables[1], (GREEDY,)),
    ]
    found["decodes in a graph of four"] = two.differences(decodes)
    again = [replace(step, start=step.start + 1) for step in decodes[:1]]
    found["one alone"] = two.differences(again)
    assert (two.device.captured, two.device.replayed) == (2, 2)
    pooled = [SequenceStep("text", [6], 20, tables[2], pool=True), replace(again[0], start=39)]
    found["pooled in a graph"] = two.differences(pooled)
    many = [
        SequenceStep(str(index), [index], 0, table[3:], (GREEDY,))
        for index, table in enumerate(tables)
    ]
    found["more than a graph holds"] = two.differences(many)
    assert (two.device.captured, two.device.replayed) == (3, 3)
    found["what lies in the pool"] = two.pool_differences()
    return found


def launches_ahead(folder: Path) -> dict[str, list[str]]:
    """Steps whose tokens are still on the device, launched before the one before is read."""
    two = pair(folder, "qwen3", KvFormat.INT8)
    specs = [GREEDY, SampleSpec(temperature=0.8, seed=5), SampleSpec(seed=6, top_k=9)]
    lengths = (16, 3, 30)
    expected = [
        Decoding(prompt(length, index), scattered_blocks(index, 4, 3), 6, spec)
        for index, (length, spec) in enumerate(zip(lengths, specs, strict=True))
    ]
    steps = [decoding.step(64) for decoding in expected]
    decode(two.plain, expected)
    launched = [two.cuda.launch(steps)]
    for ahead in range(1, 6):
        steps = [
            SequenceStep(
                decoding_step.sequence_id,
                (PENDING,),
                length + ahead - 1,
                decoding.blocks,
                (replace(spec, position=ahead),),
            )
            for decoding_step, length, decoding, spec in zip(
                steps, lengths, expected, specs, strict=True
            )
        ]
        # In another order, since rows are found by sequence.
        launched.append(two.cuda.launch(steps[::-1] if ahead % 2 else steps))
    outputs = [launch.outputs() for launch in launched]
    outputs[1::2] = [step[::-1] for step in outputs[1::2]]
    found = {}
    for index, decoding in enumerate(expected):
        drawn = [step[index].drawn[0].token_id for step in outputs]
        same = drawn == decoding.output
        found[f"ahead {index}"] = [] if same else [f"{drawn} instead of {decoding.output}"]
    assert two.device.replayed == 5
    return found


def samplings(folder: Path) -> dict[str, list[str]]:
    """All that a token can be drawn by, in one step and each in a graph of its own."""
    two = pair(folder, "llama3")
    allowed = sum(1 << token for token in range(0, VOCABULARY, 3)).to_bytes(16, "little")
    output, table = [5, 6, 5, 9, 5], [3, 4]
    noisy = SampleSpec(temperature=0.9, seed=77, choice=2, position=3)
    specs: dict[str, SampleSpec] = {
        "greedy": GREEDY,
        "noise": noisy,
        "top k": replace(noisy, top_k=5),
        "top p": replace(noisy, top_p=0.6, temperature=1.7),
        "min p": replace(noisy, min_p=0.2, temperature=3.0, seed=(1 << 64) - 1),
        "penalties": SampleSpec(
            temperature=0.0,
            presence_penalty=1.5,
            frequency_penalty=0.7,
            repetition_penalty=1.8,
            prompt_ids=prompt(30),
            output_ids=output,
            logprobs=0,
        ),
        "repetition": replace(noisy, repetition_penalty=0.4, prompt_ids=[1, 1, 2], logprobs=20),
        "biases and bans": replace(
            GREEDY,
            logit_bias=((5, 4.0), (7, -90.0), (9, 50.0)),
            banned_ids=(9, 11),
            repetition_penalty=2.0,
            output_ids=output,
            logprobs=3,
        ),
        "grammar": replace(noisy, allowed=allowed, temperature=2.0, logprobs=5),
        "grammar and bias": replace(GREEDY, allowed=allowed, logit_bias=((4, 9.0),)),
        "logprobs": replace(GREEDY, logprobs=2),
    }
    together = SequenceStep("all", prompt(len(specs)), 0, [1], tuple(specs.values()))
    found = {"together": two.differences([together])}
    two.differences([SequenceStep("alone", prompt(20), 0, table)])
    for position, (name, spec) in enumerate(specs.items(), start=20):
        step = SequenceStep("alone", [position], position, table[: 1 + position // 16], (spec,))
        found[name] = two.differences([step]) if position < 32 else ["too far"]
    impossible = replace(GREEDY, allowed=allowed, banned_ids=tuple(range(0, VOCABULARY, 3)))
    step = SequenceStep("none", [1, 2], 0, [5], (impossible,))
    ahead = SequenceStep("none", (PENDING,), 2, [5], (GREEDY,))
    launched, after = two.cuda.launch([step]), two.cuda.launch([ahead])
    try:
        found["nothing allowed"] = [f"{launched.outputs()} instead of an error"]
    except NothingAllowed:
        after.outputs()
        found["nothing allowed"] = []
    return found


def engines(folder: Path) -> dict[str, list[str]]:
    """Whole answers, from the engine that launches a step ahead."""
    two = pair(folder, "qwen2")
    limits = SchedulerLimits(step_tokens_max=24, running_max=RUNNING_MAX)
    texts, clock = Letters(), Clock()
    two.cuda.warm_up()
    on_cuda = OverlappedEngine(two.cuda, texts, stop_ids=(), limits=limits, clock=clock)
    on_cpu = Engine(two.plain, texts, stop_ids=(), limits=limits, clock=clock)
    answers = []
    for engine in (on_cuda, on_cpu):
        for index, length in enumerate((30, 4, 11)):
            engine.submit(request(f"r{index}", prompt(length, index), 4 + 3 * index))
        answers.append(run_to_end(engine).token_ids)
    assert on_cuda.steps_ahead > 3
    assert two.device.captured == 3, "all were captured before the first request"
    return {"answers": [] if answers[0] == answers[1] else [f"{answers[0]} not {answers[1]}"]}


PARTS: tuple[Callable[[Path], dict[str, list[str]]], ...] = (
    mixtures,
    launches_ahead,
    samplings,
    engines,
)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = [part(Path(folder)) for part in PARTS]
    json.dump({name: cases for part in found for name, cases in part.items()}, sys.stdout)


if __name__ == "__main__":
    main()
