"""Whole models on the device answer as in float32 on the CPU, and that as transformers does.

Toys of each family, through the runner without graphs, with them, and one step ahead; logits of
every format of weights and KV beside those of the same numbers in float32. A different token is
excused where the two best logits lie closer than the dtype can tell, and the rest of that answer
cannot be compared.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType

import torch

from benchmarks.gpu_check import driving, models
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.oracle import (
    BLOCKS,
    CPU,
    STEP_TOKENS_MAX,
    cpu_answers,
    cpu_model,
    forced_logits,
    margins_of,
)
from benchmarks.gpu_check.sizes import Sizes
from benchmarks.gpu_check.timing import Place
from inference.engine.engine import Engine
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.projection import WeightFormat
from inference.models.step_tensors import KvFormat, KvPool
from kernels.operations_triton import TritonOperations

MARGIN_MAX = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""In spreads (standard deviations) of the logits: closer than this, rounding may choose."""
LOGITS_OFF_MAX = {torch.float32: 1e-4, torch.bfloat16: 0.07}
"""Root mean square of the difference, by that of the logits."""
KV_OFF_MAX = {KvFormat.INT8: 0.04, KvFormat.FLOAT8: 0.2}
"""More for KV that is rounded more."""
COMPARED_PART_MIN = {torch.float32: 0.9, torch.bfloat16: 0.2}
"""Of all tokens: excuses must not hide that nothing was compared."""


def run(section: Section, place: Place, sizes: Sizes, dtype: torch.dtype) -> None:
    """Token ids of every family, then the logits of every format."""
    prompts = prompts_of(sizes)
    for architecture in sizes.families:
        check = partial(check_family, section, place, architecture, dtype, prompts, sizes)
        section.attempt(architecture, check)
    plain_kv = KvFormat.FLOAT32 if dtype is torch.float32 else KvFormat.BFLOAT16
    formats = [(WeightFormat.INT8, plain_kv), (WeightFormat.INT4, plain_kv)]
    if dtype is torch.bfloat16:
        formats += [
            (WeightFormat.BFLOAT16, KvFormat.INT8),
            (WeightFormat.BFLOAT16, KvFormat.FLOAT8),
        ]
    for weight_format, kv_format in formats:
        name = f"logits of {weight_format} weights over {kv_format} KV"
        check = partial(
            check_logits, section, place, dtype, weight_format, kv_format, prompts, name
        )
        section.attempt(name, check)
    if dtype is torch.float32:
        for architecture in sizes.families:
            name = f"{architecture} on the CPU"
            check = partial(check_peer, section, architecture, prompts, sizes.parity_tokens, name)
            section.attempt(name, check)


def prompts_of(sizes: Sizes) -> list[list[int]]:
    """Some tokens, of several lengths."""
    return [
        [(7 * index + 13 * length + 3) % 320 for index in range(length)]
        for length in sizes.parity_prompts
    ]


def check_family(
    section: Section,
    place: Place,
    architecture: str,
    dtype: torch.dtype,
    prompts: list[list[int]],
    sizes: Sizes,
) -> None:
    """The answers of one toy by each engine on the device."""
    config = models.toy_config(architecture)
    tensors = models.toy_tensors(config)
    reference = cpu_model(config, tensors)
    expected = cpu_answers(reference, prompts, sizes.parity_tokens)
    margins = margins_of(reference, prompts, expected)
    kv = KvFormat.FLOAT32 if dtype is torch.float32 else KvFormat.BFLOAT16
    model = load_model(
        models.TensorCheckpoint(config, tensors),
        operations=TritonOperations(),
        device=place.device,
        dtype=dtype,
        weight_format=WeightFormat.FLOAT32 if dtype is torch.float32 else WeightFormat.BFLOAT16,
    )
    check_forced(section, place, f"{architecture} logits", model, reference, prompts, dtype, kv)

    def pool() -> KvPool:
        return models.pool_for(config, BLOCKS, kv, place.device)

    limits = {"running_max": len(prompts), "step_tokens_max": STEP_TOKENS_MAX}
    plain = models.EagerRunner(model, pool(), cache_key=b"")
    graphs = models.runner_for(model, pool(), place, len(prompts))
    ahead = models.runner_for(model, pool(), place, len(prompts))
    engines: dict[str, Callable[[], Engine]] = {
        "without graphs": lambda: driving.engine_over(plain, **limits),
        "by graphs": lambda: driving.engine_over(graphs, **limits),
        "a step ahead": lambda: driving.overlapped_engine_over(ahead, **limits),
    }
    for how, engine in engines.items():
        name = f"{architecture} {how}"

        def compare(engine: Callable[[], Engine] = engine, name: str = name) -> None:
            actual = driving.answers(engine(), prompts, sizes.parity_tokens)
            report(section, name, actual, expected, margins, dtype)

        section.attempt(name, compare)


def report(
    section: Section,
    name: str,
    actual: list[list[int]],
    expected: list[list[int]],
    margins: list[list[float]],
    dtype: torch.dtype,
) -> None:
    """Tokens that differ without excuse, and how many were compared at all."""
    compared = total = wrong = 0
    for mine, theirs, gaps in zip(actual, expected, margins, strict=True):
        total += len(theirs)
        differing = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
        first = differing[0] if differing else len(theirs)
        compared += first
        wrong += first < len(theirs) and gaps[first] > MARGIN_MAX[dtype]
    section.check(f"{name}: wrong answers", float(wrong), 0.0)
    not_compared_max = 1.0 - COMPARED_PART_MIN[dtype]
    section.check(f"{name}: not compared", 1.0 - compared / total, not_compared_max)


def check_logits(
    section: Section,
    place: Place,
    dtype: torch.dtype,
    weight_format: WeightFormat,
    kv_format: KvFormat,
    prompts: list[list[int]],
    name: str,
) -> None:
    """One format of a toy, against the numbers that it stands for, in float32 on the CPU."""
    config = models.toy_config("llama")
    tensors = models.toy_tensors(config)
    reference = cpu_model(config, models.as_quantized(tensors, weight_format))
    model = load_model(
        models.TensorCheckpoint(config, tensors),
        operations=TritonOperations(),
        device=place.device,
        dtype=dtype,
        weight_format=weight_format,
    )
    check_forced(section, place, name, model, reference, prompts, dtype, kv_format)


def check_forced(
    section: Section,
    place: Place,
    name: str,
    model: Decoder,
    reference: Decoder,
    prompts: list[list[int]],
    dtype: torch.dtype,
    kv_format: KvFormat,
) -> None:
    """Logits of the longest prompt, all positions."""
    ids = max(prompts, key=len)
    expected = forced_logits(reference, ids, CPU, KvFormat.FLOAT32).double()
    actual = forced_logits(model, ids, place, kv_format).cpu().double()
    off = float((actual - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    section.check(name, off, LOGITS_OFF_MAX[dtype] + KV_OFF_MAX.get(kv_format, 0.0))


def check_peer(
    section: Section, architecture: str, prompts: list[list[int]], tokens: int, name: str
) -> None:
    """Our answers in float32 on the CPU beside those of transformers."""
    from benchmarks.gpu_check import peer

    library: ModuleType | None = peer.transformers_if_installed()
    if library is None:
        section.note(name, "transformers is not installed: not compared")
        return
    config = models.toy_config(architecture)
    tensors = models.toy_tensors(config)
    model = cpu_model(config, tensors)
    expected = cpu_answers(model, prompts, tokens)
    margins = margins_of(model, prompts, expected)
    theirs = peer.greedy_answers(library, config, tensors, prompts, tokens)
    report(section, name, theirs, expected, margins, torch.float32)
