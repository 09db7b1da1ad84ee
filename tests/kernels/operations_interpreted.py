"""Norms and activation through their Triton kernels in the interpreter; prints errors as JSON."""

import itertools
import json
import sys

import torch

from kernels.activation import silu_mul_reference
from kernels.activation_triton import silu_mul_triton
from kernels.kv_layer import KvLayer
from kernels.normalization import add_rms_norm_reference, rms_norm_reference
from kernels.normalization_triton import add_rms_norm_triton, rms_norm_triton
from kernels.operations import HeadNorms, Operations
from kernels.operations_cpu import CpuOperations
from kernels.operations_triton import TritonOperations
from tests.kernels.interpreter import repair_bfloat16

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((1, 576), (7, 1), (3, 1000), (2, 2048))
EPSILON = 1e-5


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error in steps of the dtype at the expected value (at least at 1 / 64)."""
    steps = torch.finfo(expected.dtype).eps * expected.double().abs().clamp(min=1 / 64)
    return float(((actual.double() - expected.double()).abs() / steps).max())


def interface_errors(generator: torch.Generator) -> dict[str, float]:
    """How far the operations of CUDA are from those of the CPU, through their interface."""
    rows, heads, kv_heads, head_size, size = 5, 4, 2, 16, 48
    on_cuda: Operations = TritonOperations()
    on_cpu: Operations = CpuOperations()
    hidden, delta, gate_up = torch.randn(3, rows, 2 * size, generator=generator)
    weight = hidden[0].clone()
    qkv = torch.randn(rows, heads + 2 * kv_heads, head_size, generator=generator)
    angles = torch.randn(rows, head_size // 2, generator=generator)
    norms = HeadNorms(weight[:head_size], weight[-head_size:], EPSILON)
    slots = torch.tensor([3, 40, 16, 17, 31])
    found = []
    for operations in (on_cuda, on_cpu):
        keys, values = torch.zeros(2, kv_heads, 3, 16, head_size)
        rotated = operations.rotate_and_store(
            qkv, angles.cos(), angles.sin(), slots, KvLayer(keys, values), norms
        )
        total, normed = operations.add_rms_norm(hidden.clone(), delta, weight, EPSILON)
        found.append(
            {
                "rms_norm": operations.rms_norm(hidden, weight, EPSILON),
                "total": total,
                "norm of total": normed,
                "silu_mul": operations.silu_mul(gate_up),
                "rotated": rotated,
                "keys": keys,
                "values": values,
            }
        )
    return {f"interface float32 {name}": error(found[0][name], found[1][name]) for name in found[0]}


def main() -> None:
    torch.set_num_threads(1)
    repair_bfloat16()
    generator = torch.Generator().manual_seed(3)
    errors = interface_errors(generator)
    for dtype, (rows, size) in itertools.product(DTYPES, SHAPES):
        # Rows lie apart, as those of a slice do; what lies between must not be read.
        wider = torch.randn(rows, 3 * size, generator=generator).to(dtype)
        wider[:, 2 * size :] = torch.nan
        hidden, delta, weight = wider[:, :size], wider[:, size : 2 * size], wider[0, :size].clone()
        total, normed = add_rms_norm_reference(hidden, delta, weight, EPSILON)
        found = {
            "norm": error(
                rms_norm_triton(hidden, weight, EPSILON),
                rms_norm_reference(hidden, weight, EPSILON),
            ),
            "silu_mul": error(
                silu_mul_triton(wider[:, : 2 * size]), silu_mul_reference(wider[:, : 2 * size])
            ),
        }
        actual_total, actual_normed = add_rms_norm_triton(hidden, delta, weight, EPSILON)
        found["sum"] = error(actual_total, total)
        found["sum_reuses_residual"] = float(actual_total.data_ptr() != hidden.data_ptr())
        found["norm_of_sum"] = error(actual_normed, normed)
        errors |= {f"{name} {dtype} {rows}x{size}": value for name, value in found.items()}
    extreme = torch.tensor([[-80.0, 1e4, 0.0, 1.0, 1.0, 2.0]])
    errors["silu_mul extreme"] = error(silu_mul_triton(extreme), silu_mul_reference(extreme))
    errors["norm of nothing"] = float(rms_norm_triton(hidden[:0], weight, EPSILON).numel())
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
