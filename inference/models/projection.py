"""Weight times rows: one object per matrix, in the format and by the product that suits them.

Families hold projections and call them; the tensor source makes them. A projection never depends on
which rows come together: a row's result is its own (float products may still differ in rounding
by the number of rows).
"""

import enum
from typing import Protocol

import torch
from torch.nn.functional import linear

FEW_ROWS_MAX = 5
"""Up to here MKL is faster with the weight as the left factor: 2 rows of SmolLM2 take 29 ms a step
instead of 73, 3 take 44 instead of 93, 4 take 43 instead of 58; from 6 on it is slower."""


class WeightFormat(enum.StrEnum):
    """How the matrices of a model are kept and multiplied."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT4 = "int4"
    """In groups of 32 along the input."""


class Projection(Protocol):
    """One matrix [out, in], with its bias where it has one."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out], contiguous, in the dtype of the rows."""
        ...


class FloatProjection:
    """A matrix in the dtype of the rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out]."""
        product = product_of(rows, self.weight)
        return product if self._bias is None else product + self._bias


def make_projection(
    weight: torch.Tensor, bias: torch.Tensor | None, weight_format: WeightFormat
) -> Projection:
    """The projection by a float weight [out, in] that lies on its device already."""
    if weight_format in (WeightFormat.FLOAT32, WeightFormat.BFLOAT16):
        return FloatProjection(weight, bias)
    raise ValueError(f"{weight_format} is not supported on {weight.device.type}")


def product_of(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """rows [n, in] by weight [out, in]: [n, out], contiguous."""
    count = rows.shape[0]
    if rows.device.type != "cpu" or not 0 < count <= FEW_ROWS_MAX:
        return linear(rows, weight)
    # One row goes as two: MKL's matrix-vector product reads memory a third slower than its
    # matrix-matrix product (42 against 29 ms a step).
    if count == 1:
        rows = rows.expand(2, -1).contiguous()
    return (weight @ rows.T).T[:count].contiguous()
