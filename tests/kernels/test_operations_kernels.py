"""Norms and activation on GPU compute what their references do, and those what torch does."""

import pytest
import torch
from torch.nn.functional import rms_norm, silu

from kernels.activation import silu_mul_reference
from kernels.activation_triton import SPAN, WARPS, silu_mul_kernel, silu_mul_triton
from kernels.normalization import add_rms_norm_reference, rms_norm_reference
from kernels.normalization_triton import (
    SIZE_MAX,
    add_rms_norm_triton,
    norm_shape,
    rms_norm_kernel,
    rms_norm_triton,
)
from tests.kernels.compiled import CAPABILITIES, compiled
from tests.kernels.interpreted import interpreted

STEPS_MAX = {"interface": 32.0, "float32": 4.0, "bfloat16": 1.0, "float16": 1.0}
"""Largest error in steps of each dtype. Through the interface both sides round, also before the
differences of a rotation."""


def test_the_triton_kernels_agree_with_the_references() -> None:
    errors = interpreted("operations_interpreted")

    excessive = {
        case: error
        for case, error in errors.items()
        if error > next((steps for name, steps in STEPS_MAX.items() if name in case), 0.0)
    }
    assert excessive == {}
    assert len(errors) == 7 + 3 * 4 * 5 + 2


def test_the_references_are_those_of_torch() -> None:
    hidden, delta, gate, up = torch.randn(4, 3, 40, generator=torch.Generator().manual_seed(1))
    weight = delta[0].clone()

    total, normed = add_rms_norm_reference(hidden, delta, weight, 1e-5)

    assert torch.equal(total, hidden + delta)
    assert torch.allclose(normed, rms_norm(total, (40,), weight, 1e-5), atol=1e-6)
    assert torch.allclose(
        rms_norm_reference(hidden, weight, 1e-2), rms_norm(hidden, (40,), weight, 1e-2), atol=1e-6
    )
    assert torch.allclose(
        silu_mul_reference(torch.cat((gate, up), dim=1)), silu(gate) * up, atol=1e-6
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("element", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("size", [576, 4096, 8192, SIZE_MAX])
def test_norms_stay_in_registers(capability: int, element: str, size: int) -> None:
    span, warps = norm_shape(size)
    tensors = dict.fromkeys(("hidden", "delta", "weight", "output"), f"*{element}:16")
    numbers = dict.fromkeys(("hidden_stride", "delta_stride", "size"), "i32:16")

    occupied = compiled(
        rms_norm_kernel,
        types=tensors | numbers | {"epsilon": "fp32"},
        constants={"adds": True, "span": span},
        capability=capability,
        warps=warps,
    )

    assert occupied.stack_bytes == 0
    assert occupied.registers <= 128
    assert occupied.shared_bytes <= 1024


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("element", ["fp32", "bf16", "fp16"])
def test_the_activation_stays_in_registers(capability: int, element: str) -> None:
    occupied = compiled(
        silu_mul_kernel,
        types={
            "gate_up": f"*{element}:16",
            "output": f"*{element}:16",
            "row_stride": "i32:16",
            "size": "i32:16",
        },
        constants={"span": SPAN},
        capability=capability,
        warps=WARPS,
    )

    assert occupied.stack_bytes == 0
    assert occupied.registers <= 64
    assert occupied.shared_bytes == 0


def test_what_does_not_fit_is_refused() -> None:
    hidden, weight = torch.zeros(2, 8), torch.zeros(8)

    with pytest.raises(ValueError, match="do not fit"):
        rms_norm_triton(hidden, weight[:7], 1e-5)
    with pytest.raises(ValueError, match="dense"):
        rms_norm_triton(hidden.T.contiguous().T, weight, 1e-5)
    with pytest.raises(ValueError, match="cannot be added"):
        add_rms_norm_triton(hidden, hidden.half(), weight, 1e-5)
    with pytest.raises(ValueError, match="wider"):
        rms_norm_triton(torch.zeros(1, SIZE_MAX + 1), torch.zeros(SIZE_MAX + 1), 1e-5)
    with pytest.raises(ValueError, match="no gate beside an up"):
        silu_mul_triton(torch.zeros(2, 7))
    with pytest.raises(ValueError, match="dense"):
        silu_mul_triton(hidden.T.contiguous().T)
