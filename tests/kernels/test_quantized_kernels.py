"""Quantized products on GPU compute what the reference does, and every shipped tile fits."""

import dataclasses

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from kernels.quantized_linear import GROUP, quantize_int4, quantize_int8
from kernels.quantized_linear_triton import (
    ROUND_INPUTS,
    SPLIT_ROUNDS_MIN,
    SPLITS_MAX,
    SUM_SPAN,
    int4_linear_kernel,
    int8_linear_kernel,
    linear_plan,
    quantized_linear_triton,
    sum_splits_kernel,
)
from tests.kernels.compiled import CAPABILITIES, Occupied, compiled
from tests.kernels.interpreted import interpreted

ERRORS_MAX = {"bfloat16": 2.4e-2, "float16": 3e-3, "float32": 3e-6}
"""Over the root of the inputs; 16 bits round each weight and the result once."""
SHARED_BYTES_MAX = 90 * 1024
"""What few rows may take, so that two programs fit on a multiprocessor; one with many rows does."""


def test_the_triton_kernels_agree_with_the_reference() -> None:
    errors = interpreted("quantized_interpreted")

    excessive = {
        case: error
        for case, error in errors.items()
        if error > next(most for name, most in ERRORS_MAX.items() if name in case)
    }
    assert excessive == {}
    assert len(errors) == 5 * 3 * 2 * 2 + 2


def occupied(bits: int, element: str, rows: int, capability: int) -> Occupied:
    """The kernel of that many bits, in the tiles for that many rows."""
    plan = linear_plan(
        rows,
        4096,
        4096,
        element_bytes=4 if element == "fp32" else 2,
        multiprocessors=132,
    )
    types = dict.fromkeys(("row_count", "rounds_each"), "i32")
    types |= dict.fromkeys(("outputs", "width", "row_stride"), "i32:16")
    types |= dict.fromkeys(("rows", "bias"), f"*{element}:16")
    # A share of a sum is written in float32.
    types["output"] = f"*{element}:16" if plan.splits == 1 else "*fp32:16"
    constants = {
        "has_bias": plan.splits == 1,
        "tile_rows": plan.tile_rows,
        "tile_outputs": plan.tile_outputs,
        "round_inputs": ROUND_INPUTS,
    }
    kernel = int8_linear_kernel
    if bits == 8:
        types |= {"values": "*i8:16", "scales": "*fp32:16"}
    else:
        kernel = int4_linear_kernel
        types |= {"values": "*u8:16", "scales": "*fp16:16", "minimums": "*fp16:16"}
        types["groups"] = "i32:16"
        constants |= {"group_bytes": GROUP // 2, "even": True}
    return compiled(
        kernel,
        types=types,
        constants=constants,
        capability=capability,
        warps=plan.warps,
        stages=plan.stages,
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("element", "rows"),
    [
        ("bf16", 1),
        ("bf16", 64),
        ("bf16", 512),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("bf16", 32), ("fp16", 16), ("fp16", 512), ("fp32", 1), ("fp32", 64))
        ),
    ],
)
def test_every_tile_stays_in_registers_and_leaves_room_in_shared_memory(
    capability: int, bits: int, element: str, rows: int
) -> None:
    found = occupied(bits, element, rows, capability)

    assert found.stack_bytes == 0
    assert found.registers <= (192 if rows <= 64 else 240)
    assert 0 < found.shared_bytes <= (SHARED_BYTES_MAX if rows <= 64 else 2 * SHARED_BYTES_MAX)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_adding_the_splits_stays_in_registers(capability: int) -> None:
    found = compiled(
        sum_splits_kernel,
        types={
            "partials": "*fp32:16",
            "bias": "*bf16:16",
            "output": "*bf16:16",
            "row_count": "i32",
            "outputs": "i32:16",
        },
        constants={"splits": SPLITS_MAX, "has_bias": True, "span": SUM_SPAN},
        capability=capability,
    )

    assert found.stack_bytes == 0
    assert found.registers <= 128


@given(
    rows=st.integers(1, 20_000),
    outputs=st.integers(1, 200_000),
    inputs=st.integers(1, 30_000),
    element_bytes=st.sampled_from([2, 4]),
    multiprocessors=st.sampled_from([1, 108, 132]),
)
def test_no_plan_splits_a_product_that_fills_the_card(
    rows: int, outputs: int, inputs: int, element_bytes: int, multiprocessors: int
) -> None:
    plan = linear_plan(
        rows, outputs, inputs, element_bytes=element_bytes, multiprocessors=multiprocessors
    )

    programs = -(-rows // plan.tile_rows) * -(-outputs // plan.tile_outputs)
    assert plan.splits == 1 or programs * plan.splits <= 4 * multiprocessors
    assert plan.splits == 1 or inputs > (plan.splits * SPLIT_ROUNDS_MIN - 1) * ROUND_INPUTS


def test_one_token_through_a_narrow_matrix_is_split() -> None:
    assert linear_plan(1, 4096, 4096, element_bytes=2, multiprocessors=132).splits == SPLITS_MAX
    assert linear_plan(1, 576, 576, element_bytes=2, multiprocessors=132).splits == 1


def test_what_does_not_fit_is_refused() -> None:
    weight = quantize_int4(torch.ones(4, 64))

    with pytest.raises(ValueError, match="do not fit 64 inputs"):
        quantized_linear_triton(torch.ones(2, 63), weight)
    with pytest.raises(ValueError, match="rows must be dense"):
        quantized_linear_triton(torch.ones(64, 2).T, weight)
    with pytest.raises(ValueError, match="rows must be dense"):
        quantized_linear_triton(torch.ones(2, 64).double(), weight)
    with pytest.raises(ValueError, match="bias"):
        quantized_linear_triton(torch.ones(2, 64), weight, torch.ones(5))
    with pytest.raises(ValueError, match="no quantized weight"):
        dataclasses.replace(quantize_int8(torch.ones(4, 64)), scales=torch.ones(5))
