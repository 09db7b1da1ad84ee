"""Hands a checkpoint's tensors to a model family, each once, with its shape checked.

What the family did not take must be reported, not dropped: an unused tensor means that the model
computes something else than its authors did. The loader makes one and asks for the rest at the end.
"""

from collections.abc import Mapping

import torch

from inference.models.projection import (
    FloatProjection,
    Projection,
    WeightFormat,
    make_projection,
)
from inference.weights.checkpoint import Checkpoint, CheckpointInvalid


class TensorSource:
    """Tensors of one checkpoint on their way to a device."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weight_format: WeightFormat,
    ) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._dtype = dtype
        self._weight_format = weight_format
        self._left = set(checkpoint.names())
        self.weight_bytes = 0
        """What everything taken so far occupies."""

    def has(self, name: str) -> bool:
        """Whether a tensor of this name is still to be taken."""
        return name in self._left

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor of that name. Raises CheckpointInvalid when missing or of another shape."""
        tensor = self._checked(name, shape).to(self._device, self._dtype)
        self.weight_bytes += tensor.nbytes
        return tensor

    def projection(
        self, rows_by_name: dict[str, int], columns: int, *, bias: bool = False
    ) -> Projection:
        """Several matrices as one, rows in the given order, so that one product serves them all.

        With `bias`, each matrix must have its vector beside it (`.bias` for `.weight`).
        """
        weight = self._stacked({name: (rows, columns) for name, rows in rows_by_name.items()})
        biases = {f"{n.removesuffix('.weight')}.bias": (rows,) for n, rows in rows_by_name.items()}
        return self._counted(
            make_projection(weight, self._stacked(biases) if bias else None, self._weight_format)
        )

    def head(self, name: str, rows: int, embedding: torch.Tensor) -> Projection:
        """The projection to the vocabulary, by the matrix of that name or, without one, by the
        embedding [rows, columns] that was taken already.

        Four-bit models keep it in eight: SmolLM2's next-token distributions diverge from those of
        float32 by 0.002 so, by 0.05 with four bits here too.
        """
        four_bits = self._weight_format is WeightFormat.INT4
        weight_format = WeightFormat.INT8 if four_bits else self._weight_format
        own = self.has(name)
        weight = self._stacked({name: (rows, embedding.shape[1])}) if own else embedding
        projection = make_projection(weight, None, weight_format)
        shares_memory = not own and isinstance(projection, FloatProjection)
        return projection if shares_memory else self._counted(projection)

    def _counted(self, projection: Projection) -> Projection:
        self.weight_bytes += projection.weight_bytes
        return projection

    def require_empty(self) -> None:
        """Raises CheckpointInvalid when tensors are left that nobody took."""
        if self._left:
            raise CheckpointInvalid(f"the model has no use for tensors {sorted(self._left)[:8]}")

    def _stacked(self, shapes: Mapping[str, tuple[int, ...]]) -> torch.Tensor:
        total = sum(shape[0] for shape in shapes.values())
        columns = next(iter(shapes.values()))[1:]
        stacked = torch.empty((total, *columns), dtype=self._dtype, device=self._device)
        first = 0
        for name, shape in shapes.items():
            stacked[first : first + shape[0]] = self._checked(name, shape)
            first += shape[0]
        return stacked

    def _checked(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self._checkpoint.tensor(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointInvalid(f"{name} is {tuple(tensor.shape)}, expected {shape}")
        self._left.discard(name)
        return tensor
