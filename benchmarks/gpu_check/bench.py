"""What measuring a kernel needs: inputs at real shapes, a stopwatch, and which ceiling bounds it.

Called by `kernel_speed`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.gpu_check import ceilings
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import SpeedSizes
from benchmarks.gpu_check.timing import Place, Stopwatch
from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.paged_attention import AttentionBatch
from kernels.paged_attention_plan import Card

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement needs; `read` and `dense` are the ceilings where they are known."""

    section: Section
    place: Place
    sizes: SpeedSizes
    stopwatch: Stopwatch
    card: Card
    read: float | None
    dense: float | None

    def measure(
        self, what: str, call: Callable[[], object], *, moved: float, products: float = 0.0
    ) -> None:
        """Times a call that must move so many bytes and compute so many additions and products."""
        seconds = self.stopwatch.seconds(call)
        if seconds is None:
            return
        rate, unit, against, bound = moved / seconds / 1e9, "GB/s", ceilings.READ, self.read
        if self.read and self.dense and moved / self.read < products / self.dense / 1e3:
            rate, unit = products / seconds / 1e12, "TFLOP/s"
            against, bound = ceilings.DENSE, self.dense
        remark = f"{seconds * 1e6:.1f} us"
        self.section.figure(what, rate, unit, against, bound, remark)

    def numbers(self, *shape: int) -> torch.Tensor:
        """Random bfloat16."""
        return torch.randn(shape, dtype=torch.bfloat16, device=self.place.device)


def paged(bench: Bench, sequences: int, context: int) -> tuple[AttentionBatch, int]:
    """(one query for each of some contexts over scattered blocks, blocks of the pool)."""
    each = -(-context // BLOCK_TOKENS)
    generator = torch.Generator().manual_seed(sequences)
    tables = torch.randperm(sequences * each, generator=generator, dtype=torch.int32)
    batch = AttentionBatch(
        torch.arange(sequences + 1, dtype=torch.int32),
        torch.full((sequences,), context, dtype=torch.int32),
        tables.view(sequences, each),
    )
    return batch, sequences * each


def layer_of(bench: Bench, blocks: int, stored_type: torch.dtype) -> KvLayer:
    """A pool of random numbers."""
    shape = (bench.sizes.kv_heads, blocks, BLOCK_TOKENS, bench.sizes.head_size)
    keys, values = (bench.numbers(*shape).to(stored_type) for _ in range(2))
    if stored_type not in STORED_MAX:
        return KvLayer(keys, values)
    scales = [torch.ones(shape[:3], device=bench.place.device) for _ in range(2)]
    return KvLayer(keys, values, *scales)
