"""Weight times rows: one object per matrix, in the format and by the product that suits them.

Families hold projections and call them; the tensor source makes them. A projection never depends on
which rows come together: a row's result is its own, on the CPU to the bit.
"""

import enum
from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import linear

from kernels.packed_linear_cpu import (
    Float16Linear,
    FloatLinear,
    Int4Linear,
    Int8Linear,
    bfloat16_supported,
    fbgemm_supported,
    int4_fits,
    onednn_supported,
)
from kernels.quantized_linear import GROUP, QuantizedWeight, quantize_int4, quantize_int8


class WeightFormat(enum.StrEnum):
    """How the matrices of a model are kept and multiplied."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    """On the CPU only, with rows in float32."""
    BFLOAT16 = "bfloat16"
    """On CPUs that multiply it, with rows in float32; on CUDA."""
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
    """A matrix in the dtype of the rows, which others may share."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.weight_bytes = weight.nbytes
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, in] to [n, out]."""
        return linear(rows, self.weight, self._bias)


class PackedProjection:
    """A matrix in the layout of one product."""

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
    on_device = _on_cpu if weight.device.type == "cpu" else _on_gpu
    return on_device(weight, bias, weight_format)


def _on_gpu(
    weight: torch.Tensor, bias: torch.Tensor | None, weight_format: WeightFormat
) -> Projection:
    if weight_format in (WeightFormat.FLOAT32, WeightFormat.BFLOAT16):
        return FloatProjection(weight, bias)
    if weight_format is WeightFormat.FLOAT16:
        raise ValueError("float16 weights are for the CPU")
    four_bits = weight_format is WeightFormat.INT4 and weight.shape[1] % GROUP == 0
    quantized = quantize_int4(weight) if four_bits else quantize_int8(weight)
    # Triton is not there on every machine that has a CPU.
    from kernels.quantized_linear_triton import quantized_linear_triton

    return PackedProjection(
        lambda rows: quantized_linear_triton(rows, quantized), bias, _nbytes(quantized)
    )


def _on_cpu(
    weight: torch.Tensor, bias: torch.Tensor | None, weight_format: WeightFormat
) -> Projection:
    if weight_format is WeightFormat.FLOAT32:
        if not onednn_supported():
            return FloatProjection(weight, bias)
        return PackedProjection(FloatLinear(weight), bias, weight.nbytes)
    if weight_format is WeightFormat.BFLOAT16:
        if not bfloat16_supported():
            raise ValueError("bfloat16 weights need a processor that multiplies bfloat16")
        return PackedProjection(FloatLinear(weight.bfloat16()), bias, weight.numel() * 2)
    if not fbgemm_supported():
        raise ValueError(f"{weight_format} weights on the CPU need a torch with FBGEMM")
    if weight_format is WeightFormat.FLOAT16:
        return PackedProjection(Float16Linear(weight), bias, weight.numel() * 2)
    if weight_format is WeightFormat.INT4 and int4_fits(*weight.shape):
        quantized = quantize_int4(weight)
        return PackedProjection(Int4Linear(quantized), bias, _nbytes(quantized))
    quantized = quantize_int8(weight)
    return PackedProjection(Int8Linear(quantized), bias, _nbytes(quantized))


def _nbytes(weight: QuantizedWeight) -> int:
    tensors = (weight.values, weight.scales, weight.minimums)
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
