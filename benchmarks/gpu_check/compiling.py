"""Compiles what the wrappers launch at real shapes, for cards that are not there.

Tensors without memory go through the same wrappers as on a GPU, and each launch ends in the
compiler: the cubins are those that such a card would load, specialised as there. In a process of
its own: it puts a driver of our own into Triton. Other dtypes are compiled by the kernels' tests.
"""

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from benchmarks.gpu_check import kernel_speed
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import SpeedSizes
from benchmarks.gpu_check.timing import Place
from kernels.paged_attention_plan import Card
from tests.kernels.compiled import occupied_by

META = Place(torch.device("meta"))
PROCESSORS = {80: 108, 90: 132}
STACK_BYTES_MAX = 8
"""Two registers, which ptxas gives away to fit one more program on a multiprocessor."""
SHARED_BYTES_MAX = {80: 163 * 1024, 90: 227 * 1024}
"""What a program of such a card can have at all."""
FLOAT8_CAPABILITY = 89


class AbsentCard:
    """What Triton asks its driver before it compiles."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """Any number: binaries are kept by it."""
        return int(self._target.arch)

    def get_current_stream(self, device: int) -> int:
        """None, in truth."""
        return 0


def run(section: Section, capability: int, sizes: SpeedSizes) -> None:
    """Every kernel for one kind of card, and whether it fits there without spilling."""
    card = Card(PROCESSORS[capability], native_float8=capability >= FLOAT8_CAPABILITY)
    found = compile_launches(capability)
    kernel_speed.run(section, META, sizes, [], warms_only=True, card=card)
    occupied = {name: occupied_by(binary) for name, binary in found.items()}
    section.figure(f"sm_{capability}: kernels compiled", float(len(occupied)), "")
    worst = max(occupied.items(), key=lambda named: named[1].stack_bytes)
    section.check(f"{worst[0]}: most spilled", worst[1].stack_bytes, STACK_BYTES_MAX, "bytes")
    worst = max(occupied.items(), key=lambda named: named[1].shared_bytes)
    most = SHARED_BYTES_MAX[capability]
    section.check(f"{worst[0]}: most shared memory", worst[1].shared_bytes, most, "bytes")


def compile_launches(capability: int) -> dict[str, Any]:
    """From now on launches compile and do nothing else; what they compiled is in the result."""
    function = triton.runtime.JITFunction
    launch = function.run
    found: dict[str, Any] = {}

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        binary = launch(kernel, *arguments, grid=grid, warmup=True, **options)
        if all(binary is not other for other in found.values()):
            found[f"sm_{capability} {kernel.__name__} {len(found)}"] = binary
        return binary

    triton.runtime.driver.set_active(AbsentCard(capability))
    function.run = compile_only
    return found
