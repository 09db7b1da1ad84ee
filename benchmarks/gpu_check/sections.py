"""What is checked, in which order, and how long each part may take.

Each section is a process of its own: one that crashes the device, hangs or runs out of time takes
nothing with it. Those of one phase run at once: the first phase checks values and compiles, the
later ones measure and want the device for themselves.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_check import (
    ceilings,
    correct_attention,
    correct_linear,
    correct_operations,
    correct_sampling,
    kernel_speed,
    parity,
    peer,
    serving,
)
from benchmarks.gpu_check.findings import Finding, Section, read_findings
from benchmarks.gpu_check.sizes import FULL, Sizes
from benchmarks.gpu_check.timing import Place

Run = Callable[[Section, Place, Sizes, list[Finding]], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """One section: what it calls, with the ceilings found before it."""

    phase: int
    run: Run


PHASE_TIMES_MAX_S = (70, 15, 30, 32, 45, 35)
"""Of each phase on a GPU, the start of Python and of CUDA included; 227 s together."""


def _attention(dtype: torch.dtype) -> Run:
    return lambda section, place, sizes, _: correct_attention.run(
        section, place, dtype, sizes.attention if dtype is torch.bfloat16 else sizes.other_attention
    )


def _linear(dtypes: tuple[torch.dtype, ...]) -> Run:
    def run(section: Section, place: Place, sizes: Sizes, known: list[Finding]) -> None:
        for dtype in dtypes:
            main = dtype is torch.bfloat16
            shapes = sizes.linears if main else sizes.other_linears
            correct_linear.run(section, place, dtype, shapes)

    return run


def _parity(dtype: torch.dtype) -> Run:
    return lambda section, place, sizes, _: parity.run(section, place, sizes, dtype)


def _serving(name: str, *, warms_only: bool = False) -> Run:
    return lambda section, place, sizes, known: serving.run(
        section, place, sizes.serving, name, known, warms_only=warms_only
    )


def _speed(*, warms_only: bool = False) -> Run:
    return lambda section, place, sizes, known: kernel_speed.run(
        section, place, sizes.speed, known, warms_only=warms_only
    )


def _compiled(capability: int) -> Run:
    def run(section: Section, place: Place, sizes: Sizes, known: list[Finding]) -> None:
        # Reaches into Triton further than a GPU needs.
        from benchmarks.gpu_check import compiling

        compiling.run(section, capability, FULL.speed)

    return run


CEILINGS = "ceilings"
SECTIONS: dict[str, Plan] = {
    "attention-bfloat16": Plan(0, _attention(torch.bfloat16)),
    "attention-float32": Plan(0, _attention(torch.float32)),
    "attention-float16": Plan(0, _attention(torch.float16)),
    "linear-bfloat16": Plan(0, _linear((torch.bfloat16,))),
    "linear-others": Plan(0, _linear((torch.float32, torch.float16))),
    "operations": Plan(
        0, lambda section, place, sizes, _: correct_operations.run(section, place, sizes)
    ),
    "sampling": Plan(
        0, lambda section, place, sizes, _: correct_sampling.run(section, place, sizes)
    ),
    "parity-float32": Plan(0, _parity(torch.float32)),
    "parity-bfloat16": Plan(0, _parity(torch.bfloat16)),
    "compile-kernels": Plan(0, _speed(warms_only=True)),
    "compile-1B": Plan(0, _serving("1B", warms_only=True)),
    "compile-8B": Plan(0, _serving("8B", warms_only=True)),
    CEILINGS: Plan(1, lambda section, place, sizes, _: ceilings.run(section, place, sizes.speed)),
    "kernels": Plan(2, _speed()),
    "serving-1B": Plan(3, _serving("1B")),
    "serving-8B": Plan(4, _serving("8B")),
    "transformers": Plan(
        5, lambda section, place, sizes, _: peer.run(section, place, sizes.serving)
    ),
}


COMPILED: dict[str, Plan] = {
    f"compiled-sm_{capability}": Plan(0, _compiled(capability)) for capability in (80, 90)
}
DRY_GROUPS = (
    ("compiled-sm_90",),
    ("parity-float32", "parity-bfloat16", "compile-1B", CEILINGS, "serving-8B", "transformers"),
    ("compiled-sm_80",),
    (
        "attention-bfloat16",
        "attention-float16",
        "linear-bfloat16",
        "linear-others",
        "operations",
        "sampling",
        "kernels",
    ),
)
"""What a dry run does, each group in one process: most of its time is the start of them."""
DRY_TIME_MAX_S = 600
"""Of all groups together; a busy machine with few cores takes that long."""


def run_section(name: str, folder: Path, sizes: Sizes, place: Place, seconds: float) -> None:
    """One section in this process, its findings into `folder`."""
    section = Section(name, folder / f"{name}.jsonl", seconds=seconds)
    known = read_findings(folder / f"{CEILINGS}.jsonl")
    plan = (SECTIONS | COMPILED)[name]
    began_s = time.perf_counter()
    section.attempt(name, partial(plan.run, section, place, sizes, known))
    section.figure(f"all of {name}", time.perf_counter() - began_s, "s")
