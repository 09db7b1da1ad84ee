"""What the runner asks of CUDA beyond tensors: copies that nobody waits for, events, graphs.

Everything runs on the default stream, in the order it was enqueued, so memory is reused safely and
no step reads what another still writes. A seam, so that the runner is tested without a GPU; called
by `cuda_runner` and what it uses.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

ALIGNMENT = 16
"""Bytes. Triton compiles a kernel again for pointers that are not multiples of it."""

Replay = Callable[[], torch.Tensor]
Array = np.ndarray[Any, Any]  # of any shape and number type


class Event(Protocol):
    """A point in what the device was given to do."""

    def synchronize(self) -> None:
        """Waits until the device has passed it."""
        ...


class Device(Protocol):
    """Where steps are computed. `CudaDevice`, or the host in tests."""

    place: torch.device

    def pinned(self, byte_count: int) -> torch.Tensor:
        """Host memory, uint8, that copies from and to the device need not wait for."""
        ...

    def event(self) -> Event:
        """The point after all that was enqueued so far."""
        ...

    def capture(self, body: Callable[[], torch.Tensor]) -> Replay:
        """Runs `body` and records what it enqueues, on the tensors that it used. A replay enqueues
        that again and returns the same tensor, which the next replay overwrites."""
        ...


class CudaDevice:
    """One GPU."""

    def __init__(self, place: torch.device) -> None:
        self.place = place
        self._capturing = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]  # torch's own
        # One memory for all graphs: they never run at once, and what each returns is kept.
        self._memory = torch.cuda.graph_pool_handle()

    def pinned(self, byte_count: int) -> torch.Tensor:
        """Host memory from torch's cache, which gives it out again once its copies are done."""
        return torch.empty(byte_count, dtype=torch.uint8, pin_memory=True)

    def event(self) -> Event:
        """The point after all that was enqueued so far."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's own
        event.record()
        return event

    def capture(self, body: Callable[[], torch.Tensor]) -> Replay:
        """A CUDA graph of `body`."""
        current = torch.cuda.current_stream(self.place)
        self._capturing.wait_stream(current)
        with torch.cuda.stream(self._capturing):
            # Kernels are compiled and workspaces reserved here: a capture allows neither.
            body()
        current.wait_stream(self._capturing)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory, stream=self._capturing):
            result = body()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay


def uploaded(device: Device, arrays: Sequence[Array]) -> list[torch.Tensor]:
    """The arrays on the device, of the same shapes and types, by one copy."""
    starts, end = [], 0
    for array in arrays:
        starts.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    packed = device.pinned(end)
    places = [slice(s, s + array.nbytes) for s, array in zip(starts, arrays, strict=True)]
    for place, array in zip(places, arrays, strict=True):
        packed.numpy()[place] = array.reshape(-1).view(np.uint8)
    on_device = packed.to(device.place, non_blocking=True)
    return [
        on_device[place].view(torch.from_numpy(array).dtype).view(array.shape)
        for place, array in zip(places, arrays, strict=True)
    ]


class Download:
    """Tensors on their way to the host."""

    def __init__(self, device: Device, tensors: Sequence[torch.Tensor]) -> None:
        """Enqueues the copies."""
        self._host = []
        for tensor in tensors:
            host = device.pinned(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
            self._host.append(host.copy_(tensor, non_blocking=True))
        self._arrived = device.event()

    def read(self) -> list[torch.Tensor]:
        """Waits for them."""
        self._arrived.synchronize()
        return self._host
