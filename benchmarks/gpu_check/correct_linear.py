"""Products by weights in eight and four bits against the reference in float64."""

from functools import partial

import torch

from benchmarks.gpu_check.correct_attention import short
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import LinearShape
from benchmarks.gpu_check.timing import Place
from kernels.quantized_linear import quantize_int4, quantize_int8, quantized_linear_reference
from kernels.quantized_linear_triton import quantized_linear_triton

ERROR_MAX = {torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3, torch.float32: 1e-5}
"""Over the size of the result and of what was added up to it: the dtype rounds each dequantized
weight and the result, and among a million results some rounding goes one way."""
QUANTIZERS = {"w8a16": quantize_int8, "w4a16": quantize_int4}


def run(
    section: Section, place: Place, dtype: torch.dtype, shapes: tuple[LinearShape, ...]
) -> None:
    """Every shape with both formats, without a bias and with one."""
    for rows, outputs, inputs in shapes:
        for kind in QUANTIZERS:
            name = f"{kind} {short(dtype)} {rows}x{inputs} to {outputs}"
            shape = (rows, outputs, inputs)
            section.attempt(name, partial(check_product, section, place, kind, dtype, shape, name))


def check_product(
    section: Section, place: Place, kind: str, dtype: torch.dtype, shape: LinearShape, name: str
) -> None:
    """Rows lie apart, as those of a slice do; what lies between must not be read."""
    count, outputs, inputs = shape
    generator = torch.Generator().manual_seed(sum(shape))
    wider = torch.randn(count, inputs + 16, generator=generator).to(place.device, dtype)
    wider[:, inputs:] = torch.nan
    rows = wider[:, :inputs]
    bias = torch.randn(outputs, generator=generator).to(place.device, dtype)
    weight = torch.randn(outputs, inputs, generator=generator).to(place.device)
    quantized = QUANTIZERS[kind](weight)
    worst = 0.0
    for given in (None, bias):
        actual = quantized_linear_triton(rows, quantized, given).double()
        expected = quantized_linear_reference(rows.double(), quantized, given)
        off = (actual - expected).abs() / (expected.abs() + inputs**0.5)
        worst = max(worst, float(off.max()))
        # The sum of its parts must not depend on the order in which the device got to them.
        again = quantized_linear_triton(rows, quantized, given).double()
        assert torch.equal(actual, again), "two runs of one product differ"
    section.check(name, worst, ERROR_MAX[dtype])
