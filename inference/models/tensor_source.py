"""Hands a checkpoint's tensors to a model family, each once, with its shape checked.

What the family did not take must be reported, not dropped: an unused tensor means that the model
computes something else than its authors did. The loader makes one and asks for the rest at the end.
"""

import torch

from inference.weights.checkpoint import Checkpoint, CheckpointInvalid


class TensorSource:
    """Tensors of one checkpoint on their way to a device."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device
        self._left = set(checkpoint.names())

    def has(self, name: str) -> bool:
        """Whether a tensor of this name is still to be taken."""
        return name in self._left

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor of that name. Raises CheckpointInvalid when missing or of another shape."""
        return self._checked(name, shape).to(self._device, self._dtype)

    def take_stacked(self, rows_by_name: dict[str, int], columns: int) -> torch.Tensor:
        """Several matrices as one, rows in the given order, so that one product serves them all."""
        stacked = torch.empty(
            (sum(rows_by_name.values()), columns), dtype=self._dtype, device=self._device
        )
        first = 0
        for name, rows in rows_by_name.items():
            stacked[first : first + rows] = self._checked(name, (rows, columns))
            first += rows
        return stacked

    def require_empty(self) -> None:
        """Raises CheckpointInvalid when tensors are left that nobody took."""
        if self._left:
            raise CheckpointInvalid(f"the model has no use for tensors {sorted(self._left)[:8]}")

    def _checked(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self._checkpoint.tensor(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointInvalid(f"{name} is {tuple(tensor.shape)}, expected {shape}")
        self._left.discard(name)
        return tensor
