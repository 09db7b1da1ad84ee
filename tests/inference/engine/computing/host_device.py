"""The CPU in the place of a GPU: what `CudaDevice` does, at once, with its traps kept.

A replay returns the same memory each time, and what is captured must take nothing from the host, as
with a CUDA graph.
"""

from collections.abc import Callable

import torch

from inference.engine.computing.cuda_device import Replay


class Passed:
    """An event that nobody waits for: the host has done everything before it."""

    def synchronize(self) -> None:
        """Returns at once."""


class HostDevice:
    """Implements `inference.engine.computing.cuda_device.Device`."""

    def __init__(self) -> None:
        self.place = torch.device("cpu")
        self.captured = 0
        self.replayed = 0
        self._in_graph = False

    def pinned(self, byte_count: int) -> torch.Tensor:
        assert not self._in_graph, "a graph would copy the same values in each replay"
        return torch.empty(byte_count, dtype=torch.uint8)

    def event(self) -> Passed:
        assert not self._in_graph
        return Passed()

    def capture(self, body: Callable[[], torch.Tensor]) -> Replay:
        self.captured += 1
        result = self._graphed(body).clone()

        def replay() -> torch.Tensor:
            self.replayed += 1
            return result.copy_(self._graphed(body))

        return replay

    def _graphed(self, body: Callable[[], torch.Tensor]) -> torch.Tensor:
        self._in_graph = True
        result = body()
        self._in_graph = False
        return result
