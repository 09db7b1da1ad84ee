"""Weights in eight and four bits: the formats, how weights become them, and the plain product.

The loader quantizes, the projections of each device multiply; the reference here is the oracle of
their tests and nothing else calls it. Rows are never quantized here: an answer must not depend on
its neighbours, so whoever wants cheaper rows scales each by its own.
"""

from dataclasses import dataclass

import torch

GROUP = 32
"""Inputs that share one scale and one minimum in four bits."""
INT8_MAX = 127
INT4_MAX = 15


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A matrix [outputs, inputs] in eight or four bits; dense tensors, all on one device.

    Eight bits: `values` int8 [outputs, inputs] times `scales` float32 [outputs].

    Four bits: `values` uint8 [outputs, inputs / 2], `scales` and `minimums` float16
    [outputs, inputs / GROUP]; a weight is nibble * scale + minimum. The 16 bytes of a group hold
    its inputs 0 .. 15 in the low and 16 .. 31 in the high nibbles (the order of GGML's Q4_1, whose
    weights pass through without loss). With a minimum rather than a zero point SmolLM2's embedding
    has a relative error of 8.5 % instead of 10.1 %, and its other matrices, which come as Q4_1,
    have none instead of 9 %.
    """

    values: torch.Tensor
    scales: torch.Tensor
    minimums: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Raises ValueError unless shapes, dtypes and layouts are those of one of the formats."""
        outputs, width = self.values.shape
        expected = (torch.int8, torch.float32, torch.Size((outputs,)))
        if self.minimums is not None:
            expected = (torch.uint8, torch.float16, torch.Size((outputs, width * 2 // GROUP)))
            if self.minimums.shape != self.scales.shape or self.minimums.dtype != torch.float16:
                raise ValueError("minimums must be laid out like the scales")
        if (self.values.dtype, self.scales.dtype, self.scales.shape) != expected:
            raise ValueError(
                f"values {self.values.dtype} {tuple(self.values.shape)} and scales "
                f"{self.scales.dtype} {tuple(self.scales.shape)} are no quantized weight"
            )
        if not (self.values.is_contiguous() and self.scales.is_contiguous()):
            raise ValueError("quantized values and scales must be dense")

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return self.values.shape[0]

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""
        return self.values.shape[1] * (1 if self.minimums is None else 2)


def quantize_int8(weight: torch.Tensor) -> QuantizedWeight:
    """A float weight [outputs, inputs] in eight bits, symmetric, one scale per output.

    Raises ValueError for a weight that is not finite.
    """
    scales = weight.float().abs().amax(dim=1) / INT8_MAX
    _check_finite(scales)
    levels = (weight.float() / _divisors(scales)[:, None]).round_()
    return QuantizedWeight(levels.to(torch.int8).contiguous(), scales)


def quantize_int4(weight: torch.Tensor) -> QuantizedWeight:
    """A float weight [outputs, inputs] in four bits, one scale and minimum per group of inputs.

    Raises ValueError if `inputs` is no multiple of GROUP (such a matrix stays in eight bits), or
    for a weight that is not finite or beyond float16.
    """
    outputs, inputs = weight.shape
    if inputs % GROUP:
        raise ValueError(f"{inputs} inputs are no multiple of {GROUP}: keep this weight in int8")
    groups = weight.float().reshape(outputs, -1, GROUP)
    low, high = groups.aminmax(dim=-1)
    scales, minimums = ((high - low) / INT4_MAX).half(), low.half()
    _check_finite(scales)
    _check_finite(minimums)
    levels = (groups - minimums.float()[..., None]) / _divisors(scales.float())[..., None]
    first, second = levels.round_().clamp_(0, INT4_MAX).to(torch.uint8).chunk(2, dim=-1)
    packed = (first | (second << 4)).reshape(outputs, inputs // 2)
    return QuantizedWeight(packed, scales, minimums)


def dequantize(weight: QuantizedWeight) -> torch.Tensor:
    """The float32 matrix [outputs, inputs] that a quantized weight stands for."""
    if weight.minimums is None:
        return weight.values.float() * weight.scales[:, None]
    packed = weight.values.view(weight.outputs, -1, GROUP // 2)
    levels = torch.cat((packed & INT4_MAX, packed >> 4), dim=-1).float()
    floats = levels * weight.scales.float()[..., None] + weight.minimums.float()[..., None]
    return floats.view(weight.outputs, weight.inputs)


def quantized_linear_reference(
    rows: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """rows [n, inputs] times the weight, plus bias [outputs]: [n, outputs] in the rows' dtype.

    Computed in float64. Raises ValueError for shapes that do not fit.
    """
    check_linear_shapes(rows, weight, bias)
    product = rows.double() @ dequantize(weight).double().T
    return (product if bias is None else product + bias.double()).to(rows.dtype)


def check_linear_shapes(
    rows: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None
) -> None:
    """Raises ValueError unless rows and bias fit the weight. Reads no tensor's values."""
    if rows.dim() != 2 or rows.shape[1] != weight.inputs:
        raise ValueError(f"rows {tuple(rows.shape)} do not fit {weight.inputs} inputs")
    if bias is not None and bias.shape != (weight.outputs,):
        raise ValueError(f"bias {tuple(bias.shape)} does not fit {weight.outputs} outputs")


def _check_finite(numbers: torch.Tensor) -> None:
    if not torch.isfinite(numbers).all():
        raise ValueError("the weight is not finite, or too large to quantize")


def _divisors(scales: torch.Tensor) -> torch.Tensor:
    """The scales, or 1 where all weights are equal."""
    return scales.where(scales != 0.0, 1.0)
