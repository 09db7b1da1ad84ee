"""What the card is, and what it reaches at most by torch's own kernels: the bounds of all figures.

Data sheets promise more than any program gets, so the ceilings are measured in the same run.
"""

import os
import platform
import subprocess
from collections.abc import Callable

import torch
import triton

from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import SpeedSizes
from benchmarks.gpu_check.timing import Place, Stopwatch

READ = "read bandwidth"
COPY = "copy bandwidth"
DENSE = "dense bfloat16"
NVIDIA_SMI_TIME_MAX_S = 10


def run(section: Section, place: Place, sizes: SpeedSizes) -> None:
    """Names the card and measures its ceilings."""
    stopwatch = Stopwatch(place)
    section.attempt("device", lambda: describe(section, place))
    section.attempt(READ, lambda: read_bandwidth(section, stopwatch, place, sizes))
    section.attempt(COPY, lambda: copy_bandwidth(section, stopwatch, place, sizes))
    section.attempt(DENSE, lambda: dense_product(section, stopwatch, place, sizes))
    section.attempt("dense int8", lambda: dense_int8(section, stopwatch, place, sizes))


def describe(section: Section, place: Place) -> None:
    """The card, its driver, and the versions of what runs on it."""
    section.note(
        "versions",
        f"Python {platform.python_version()}, torch {torch.__version__} (CUDA "
        f"{torch.version.cuda}), triton {triton.__version__}, {os.cpu_count()} CPU cores",
    )
    if not place.is_gpu:
        return
    properties = torch.cuda.get_device_properties(place.device)
    section.note(
        "device",
        f"{properties.name}, sm_{properties.major}{properties.minor}, "
        f"{properties.multi_processor_count} multiprocessors, "
        f"{properties.total_memory / 2**30:.0f} GiB",
    )
    section.note("driver", driver_version())


def driver_version() -> str:
    """By nvidia-smi; says so where it does not answer."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=NVIDIA_SMI_TIME_MAX_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {type(error).__name__}"
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"


def read_bandwidth(section: Section, stopwatch: Stopwatch, place: Place, sizes: SpeedSizes) -> None:
    """A sum over a large tensor."""
    numbers = torch.ones(sizes.bandwidth_bytes // 4, device=place.device)
    _rate(section, READ, stopwatch, numbers.sum, numbers.nbytes / 1e9, "GB/s")


def copy_bandwidth(section: Section, stopwatch: Stopwatch, place: Place, sizes: SpeedSizes) -> None:
    """A copy within the device, read and written bytes counted."""
    source = torch.ones(sizes.bandwidth_bytes // 8, device=place.device)
    target = torch.empty_like(source)
    _rate(section, COPY, stopwatch, lambda: target.copy_(source), 2 * source.nbytes / 1e9, "GB/s")


def dense_product(section: Section, stopwatch: Stopwatch, place: Place, sizes: SpeedSizes) -> None:
    """A large square product in bfloat16, of random numbers: zeros take less power."""
    side = sizes.square
    one, other = torch.randn(2, side, side, device=place.device).bfloat16()
    _rate(section, DENSE, stopwatch, lambda: one @ other, 2 * side**3 / 1e12, "TFLOP/s")


def dense_int8(section: Section, stopwatch: Stopwatch, place: Place, sizes: SpeedSizes) -> None:
    """The same in int8, for orientation: our kernels multiply in 16 bits."""
    side = sizes.square
    one, other = torch.randint(-99, 99, (2, side, side), dtype=torch.int8, device=place.device)
    # No public function multiplies int8 on CUDA.
    multiply = torch._int_mm  # noqa: SLF001
    _rate(
        section,
        "dense int8",
        stopwatch,
        lambda: multiply(one, other.T),
        2 * side**3 / 1e12,
        "TOP/s",
    )


def _rate(
    section: Section,
    what: str,
    stopwatch: Stopwatch,
    call: Callable[[], object],
    amount: float,
    unit: str,
) -> None:
    seconds = stopwatch.seconds(call)
    if seconds is not None:
        section.figure(what, amount / seconds, unit)
