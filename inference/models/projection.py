"""Weight times rows: one object per matrix, in the format and by the product that suits them.

Families hold projections and call them; the tensor source makes them. A projection never depends on
which rows come together: a row's result is its own (float products may still differ in rounding
by the number of rows).
"""

import enum
from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import linear

from kernels.quantized_linear import GROUP, QuantizedWeight, quantize_int4, quantize_int8
from kernels.quantized_linear_cpu import (
    Float16Linear,
    Int4Linear,
    Int8Linear,
    fbgemm_supported,
    int4_fits,
)

FEW_ROWS_MAX = 5
"""Up to here MKL is faster with the weight as the left factor: 2 rows of SmolLM2 take 29 ms a step
instead of 73, 3 take 44 instead of 93, 4 take 43 instead of 58; from 6 on it is slower."""


class WeightFormat(enum.StrEnum):
    """How the matrices of a model are kept and multiplied."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    """On the CPU only, with rows in float32."""
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT4 = "int4"
    """In groups of 32 along the input."""


class Projection(Protocol):
    """One matrix [out, in], with its bias where it has one."""

    weight_bytes: int
    """What the matrix takes in memory."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out], contiguous, in the dtype of the rows."""
        ...


class FloatProjection:
    """A matrix in the dtype of the rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.weight_bytes = weight.nbytes
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out]."""
        product = product_of(rows, self.weight)
        return product if self._bias is None else product + self._bias


class PackedProjection:
    """A matrix in a cheaper format, by the product of its device."""

    def __init__(
        self,
        product: Callable[[torch.Tensor], torch.Tensor],
        bias: torch.Tensor | None,
        weight_bytes: int,
    ) -> None:
        self.weight_bytes = weight_bytes
        self._product = product
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out]."""
        product = self._product(rows)
        return product if self._bias is None else product.add_(self._bias)


def make_projection(
    weight: torch.Tensor, bias: torch.Tensor | None, weight_format: WeightFormat
) -> Projection:
    """The projection by a float weight [out, in] that lies on its device already.

    Four bits need a shape that their product takes; other matrices stay in eight. Raises ValueError
    for a format that the device does not support.
    """
    on_cpu = weight.device.type == "cpu"
    if weight_format in (WeightFormat.FLOAT32, WeightFormat.BFLOAT16):
        return FloatProjection(weight, bias)
    if on_cpu and not fbgemm_supported():
        raise ValueError(f"{weight_format} weights on the CPU need a torch with FBGEMM")
    if weight_format is WeightFormat.FLOAT16:
        if not on_cpu:
            raise ValueError("float16 weights are for the CPU")
        return PackedProjection(Float16Linear(weight), bias, weight.numel() * 2)
    four_bits_fit = int4_fits(*weight.shape) if on_cpu else weight.shape[1] % GROUP == 0
    four_bits = weight_format is WeightFormat.INT4 and four_bits_fit
    quantized = quantize_int4(weight) if four_bits else quantize_int8(weight)
    return PackedProjection(_product(quantized), bias, _nbytes(quantized))


def _nbytes(weight: QuantizedWeight) -> int:
    tensors = (weight.values, weight.scales, weight.minimums)
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _product(weight: QuantizedWeight) -> Callable[[torch.Tensor], torch.Tensor]:
    if weight.values.device.type == "cpu":
        return Int8Linear(weight) if weight.minimums is None else Int4Linear(weight)
    # Triton is not there on every machine that has a CPU.
    from kernels.quantized_linear_triton import quantized_linear_triton

    return lambda rows: quantized_linear_triton(rows, weight)


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
