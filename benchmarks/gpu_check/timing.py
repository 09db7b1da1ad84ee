"""Where the check runs and how it takes time there: CUDA events behind a flushed cache.

Without a GPU the same calls go to the interpreter, once and by the host's clock, or to tensors
without memory, untimed: what they say then is only that the lines run.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS = 3
ROUNDS = 15
FLUSH_BYTES = 1 << 30
"""Written between two rounds: several times any cache, and long enough (a quarter of a millisecond)
for the host to launch what is measured before the device gets to it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU, the CPU under Triton's interpreter, or "meta": shapes without numbers."""

    device: torch.device

    @property
    def is_gpu(self) -> bool:
        """Whether times mean anything."""
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Until the device has done all it was given."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        """Gives memory back that nothing refers to any more."""
        if self.is_gpu:
            torch.cuda.empty_cache()


class Stopwatch:
    """Measures calls at one place. With `warms_only` each is called once, to be compiled."""

    def __init__(self, place: Place, *, warms_only: bool = False) -> None:
        self._place = place
        self.warms_only = warms_only or place.device.type == "meta"
        self._flushed: torch.Tensor | None = None

    def seconds(self, call: Callable[[], object]) -> float | None:
        """The median time of a call; None where nothing is measured."""
        if self.warms_only:
            call()
            self._place.wait()
            return None
        if not self._place.is_gpu:
            began = time.perf_counter()
            call()
            return time.perf_counter() - began
        for _ in range(WARM_UPS):
            call()
        replayed = self._captured(call)
        return statistics.median(self._round(replayed) for _ in range(ROUNDS))

    def _captured(self, call: Callable[[], object]) -> Callable[[], object]:
        """The call as a CUDA graph: launching from Python takes longer than many kernels."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                call()
        except RuntimeError as error:
            print(f"launched from Python, not captured: {error}", file=sys.stderr)
            return call
        return graph.replay

    def _round(self, call: Callable[[], object]) -> float:
        if self._flushed is None:
            self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=self._place.device)
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
        self._flushed.zero_()
        began.record()
        call()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1000
