"""Quantized products through the Triton kernels in the interpreter; prints errors as JSON."""

import itertools
import json
import sys

import torch

from kernels.quantized_linear import (
    quantize_int4,
    quantize_int8,
    quantized_linear_reference,
)
from kernels.quantized_linear_triton import quantized_linear_triton
from tests.kernels.interpreter import repair_bfloat16

SHAPES = ((1, 70, 96), (3, 64, 32), (17, 130, 256), (70, 129, 160), (2, 64, 1120))
"""(rows, outputs, inputs); the last one is split."""
QUANTIZERS = {"int8": quantize_int8, "int4": quantize_int4}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def main() -> None:
    torch.set_num_threads(1)
    repair_bfloat16()
    generator = torch.Generator().manual_seed(5)
    errors: dict[str, float] = {}
    for (count, outputs, inputs), dtype in itertools.product(SHAPES, DTYPES):
        wider = torch.randn(count, inputs + 16, generator=generator).to(dtype)
        wider[:, inputs:] = torch.nan
        rows = wider[:, :inputs]
        bias = torch.randn(outputs, generator=generator).to(dtype)
        for name, quantize in QUANTIZERS.items():
            weight = quantize(torch.randn(outputs, inputs, generator=generator))
            for given in (None, bias):
                actual = quantized_linear_triton(rows, weight, given).double()
                expected = quantized_linear_reference(rows.double(), weight, given)
                off = (actual - expected).abs().max() / inputs**0.5
                biased = "plain" if given is None else "biased"
                errors[f"{name} {dtype} {count}x{outputs}x{inputs} {biased}"] = float(off)
    odd = quantize_int8(torch.randn(9, 45, generator=generator))
    rows = torch.randn(2, 45, generator=generator)
    off = quantized_linear_triton(rows, odd) - quantized_linear_reference(rows, odd)
    errors["int8 float32 of odd inputs"] = float(off.abs().max() / 45**0.5)
    errors["int8 float32 of no rows"] = float(quantized_linear_triton(rows[:0], odd).numel())
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
