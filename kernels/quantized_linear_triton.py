"""Rows times a weight in eight or four bits on GPU; weights become floats in registers.

The weight is the left factor: tensor cores take their left operand from registers, where the
weights have just been widened, and few rows make a narrow right one, so decode wastes no tile.
Called by the projections on CUDA. It must never quantize rows nor add in an order left to chance.
"""

import functools
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from kernels.quantized_linear import GROUP, QuantizedWeight, check_linear_shapes

ROW_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROUND_INPUTS = 128
"""Inputs read per round; in four bits, the fewest whose scales can be fetched asynchronously."""
FEW_ROWS_MAX = 64
"""Up to here the time goes into reading the weight."""
SPLITS_MAX = 8
SPLIT_ROUNDS_MIN = 4
MULTIPROCESSORS_WITHOUT_GPU = 132
"""Of an H100 or H200: what plans are made for in the interpreter."""
SUM_SPAN = 1024
STEP_SIZES = ("row_count",)
"""What changes from step to step: compiling for its value would stall a step."""


@triton.jit(do_not_specialize=STEP_SIZES)  # type: ignore[untyped-decorator]  # Triton ships no types
def int8_linear_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    rows,
    values,
    scales,
    bias,
    output,
    row_count,
    outputs,
    width,
    row_stride,
    rounds_each,
    has_bias: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_outputs: tl.constexpr,
    round_inputs: tl.constexpr,
):
    """One tile of the output, or of one split's share of it; `width` is the inputs."""
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.program_id(1) * tile_outputs + tl.arange(0, tile_outputs)
    is_row = (row < row_count)[None]
    is_column = (column < outputs)[:, None]
    row_places = rows + row.to(tl.int64)[None] * row_stride
    column_places = values + column.to(tl.int64)[:, None] * width
    total = tl.zeros([tile_outputs, tile_rows], tl.float32)
    start = tl.program_id(2) * rounds_each * round_inputs
    stop = tl.minimum(start + rounds_each * round_inputs, width)
    for first in range(start, stop, round_inputs):
        place = first + tl.arange(0, round_inputs)
        inside = place < width
        levels = tl.load(column_places + place[None], mask=is_column & inside[None], other=0)
        tile = tl.load(row_places + place[:, None], mask=inside[:, None] & is_row, other=0.0)
        total = tl.dot(levels.to(tile.dtype), tile, total, input_precision="ieee")
    total *= tl.load(scales + column, mask=column < outputs, other=0.0)[:, None]
    _store_tile(total, bias, output, row, column, row_count, outputs, has_bias)


@triton.jit(do_not_specialize=STEP_SIZES)  # type: ignore[untyped-decorator]  # Triton ships no types
def int4_linear_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    rows,
    values,
    scales,
    minimums,
    bias,
    output,
    row_count,
    outputs,
    groups,
    width,
    row_stride,
    rounds_each,
    has_bias: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_outputs: tl.constexpr,
    round_inputs: tl.constexpr,
    group_bytes: tl.constexpr,
    even: tl.constexpr,
):
    """One tile of the output, or of one split's share of it; `width` is bytes, inputs / 2.

    A byte holds two inputs half a group apart, so each round is two products. `even` says that
    rounds divide the inputs.
    """
    round_bytes: tl.constexpr = round_inputs // 2
    round_groups: tl.constexpr = round_bytes // group_bytes
    flat: tl.constexpr = [tile_outputs, round_bytes]
    grouped: tl.constexpr = [tile_outputs, round_groups, group_bytes]
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    column = tl.program_id(1) * tile_outputs + tl.arange(0, tile_outputs)
    is_row = (row < row_count)[None]
    is_column = (column < outputs)[:, None]
    row_places = rows + row.to(tl.int64)[None] * row_stride
    column_places = values + column.to(tl.int64)[:, None] * width
    group_scales = scales + column.to(tl.int64)[:, None] * groups
    group_minimums = minimums + column.to(tl.int64)[:, None] * groups
    total = tl.zeros([tile_outputs, tile_rows], tl.float32)
    start = tl.program_id(2) * rounds_each * round_bytes
    stop = tl.minimum(start + rounds_each * round_bytes, width)
    for first in range(start, stop, round_bytes):
        byte = first + tl.arange(0, round_bytes)
        inside = byte < width
        packed = tl.load(column_places + byte[None], mask=is_column & inside[None], other=0)
        place = (byte // group_bytes * (2 * group_bytes) + byte % group_bytes)[:, None]
        is_place = inside[:, None] & is_row
        low_tile = tl.load(row_places + place, mask=is_place, other=0.0)
        high_tile = tl.load(row_places + (place + group_bytes), mask=is_place, other=0.0)
        levels = tl.reshape(packed, grouped)
        which = first // group_bytes + tl.arange(0, round_groups)
        # Masked by output alone, these narrow loads are wide enough to be fetched rounds ahead.
        is_group = is_column if even else is_column & (which < groups)[None]
        scale = tl.load(group_scales + which[None], mask=is_group, other=0.0)
        minimum = tl.load(group_minimums + which[None], mask=is_group, other=0.0)
        scale, minimum = scale.to(tl.float32)[:, :, None], minimum.to(tl.float32)[:, :, None]
        low = (levels & 15).to(tl.float32) * scale + minimum
        high = (levels >> 4).to(tl.float32) * scale + minimum
        low, high = low.to(low_tile.dtype), high.to(high_tile.dtype)
        total = tl.dot(tl.reshape(low, flat), low_tile, total, input_precision="ieee")
        total = tl.dot(tl.reshape(high, flat), high_tile, total, input_precision="ieee")
    _store_tile(total, bias, output, row, column, row_count, outputs, has_bias)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _store_tile(  # type: ignore[no-untyped-def]  # types are those of each call
    total, bias, output, row, column, row_count, outputs, has_bias: tl.constexpr
):
    """Writes total [outputs, rows] to output [splits, rows, outputs]."""
    is_column = column < outputs
    if has_bias:
        total += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[:, None]
    place = (tl.program_id(2).to(tl.int64) * row_count + row)[None] * outputs + column[:, None]
    tl.store(
        output + place,
        total.to(output.dtype.element_ty),
        mask=is_column[:, None] & (row < row_count)[None],
    )


@triton.jit(do_not_specialize=STEP_SIZES)  # type: ignore[untyped-decorator]  # Triton ships no types
def sum_splits_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    partials,
    bias,
    output,
    row_count,
    outputs,
    splits: tl.constexpr,
    has_bias: tl.constexpr,
    span: tl.constexpr,
):
    """Adds the splits' shares, in their order, and the bias."""
    size = row_count.to(tl.int64) * outputs
    place = tl.program_id(0).to(tl.int64) * span + tl.arange(0, span)
    inside = place < size
    total = tl.load(partials + place, mask=inside, other=0.0)
    for split in tl.static_range(1, splits):
        total += tl.load(partials + split * size + place, mask=inside, other=0.0)
    if has_bias:
        total += tl.load(bias + place % outputs, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + place, total.to(output.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """How a product is cut: tiles of rows by outputs, shares of the sum, rounds on their way."""

    tile_rows: int
    tile_outputs: int
    splits: int
    warps: int
    stages: int


def linear_plan(
    rows: int, outputs: int, inputs: int, *, element_bytes: int, multiprocessors: int
) -> LinearPlan:
    """The plan for rows of `element_bytes` (2 or 4) per element.

    Few rows split the sum for up to four programs on each multiprocessor, as long as every share
    has rounds to overlap; many rows take the largest square tiles that spill nothing. Float32 is
    there to check with: outside the tensor cores, in small tiles.
    """
    if element_bytes == 4:
        plan, programs_each = LinearPlan(16, 32, splits=1, warps=4, stages=2), 1
    elif rows <= FEW_ROWS_MAX:
        tile_rows = max(16, triton.next_power_of_2(rows))
        plan, programs_each = LinearPlan(tile_rows, 64, splits=1, warps=4, stages=4), 4
    else:
        plan, programs_each = LinearPlan(128, 128, splits=1, warps=8, stages=3), 1
    programs = triton.cdiv(rows, plan.tile_rows) * triton.cdiv(outputs, plan.tile_outputs)
    rounds = triton.cdiv(inputs, ROUND_INPUTS)
    splits = 1
    while (
        splits < SPLITS_MAX
        and programs * splits * 2 <= multiprocessors * programs_each
        and rounds >= splits * 2 * SPLIT_ROUNDS_MIN
    ):
        splits *= 2
    return replace(plan, splits=splits)


def quantized_linear_triton(
    rows: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """rows [n, inputs] times the weight, plus bias [outputs]: [n, outputs] in the rows' dtype.

    Sums in float32. Raises ValueError for shapes, dtypes or layouts that do not fit.
    """
    check_linear_shapes(rows, weight, bias)
    if rows.dtype not in ROW_DTYPES or rows.stride(1) != 1:
        raise ValueError(f"rows must be dense, in one of {ROW_DTYPES}")
    count, outputs = rows.shape[0], weight.outputs
    output = rows.new_empty(count, outputs)
    if not count:
        return output
    plan = linear_plan(
        count,
        outputs,
        weight.inputs,
        element_bytes=rows.element_size(),
        multiprocessors=_multiprocessors(rows.device),
    )
    if plan.splits == 1:
        _launch(rows, weight, bias, output, plan)
        return output
    partials = rows.new_empty(plan.splits, count, outputs, dtype=torch.float32)
    _launch(rows, weight, None, partials, plan)
    sum_splits_kernel[(triton.cdiv(count * outputs, SUM_SPAN),)](
        partials,
        rows if bias is None else bias,
        output,
        count,
        outputs,
        splits=plan.splits,
        has_bias=bias is not None,
        span=SUM_SPAN,
    )
    return output


def _launch(
    rows: torch.Tensor,
    weight: QuantizedWeight,
    bias: torch.Tensor | None,
    output: torch.Tensor,
    plan: LinearPlan,
) -> None:
    grid = (
        triton.cdiv(rows.shape[0], plan.tile_rows),
        triton.cdiv(weight.outputs, plan.tile_outputs),
        plan.splits,
    )
    tensors = [rows, weight.values, weight.scales, rows if bias is None else bias, output]
    sizes = [rows.shape[0], weight.outputs, weight.values.shape[1], rows.stride(0)]
    kernel, constants = int8_linear_kernel, {}
    if weight.minimums is not None:
        tensors.insert(3, weight.minimums)
        sizes.insert(2, weight.inputs // GROUP)
        kernel = int4_linear_kernel
        constants = {"group_bytes": GROUP // 2, "even": weight.inputs % ROUND_INPUTS == 0}
    kernel[grid](
        *tensors,
        *sizes,
        triton.cdiv(triton.cdiv(weight.inputs, ROUND_INPUTS), plan.splits),
        has_bias=bias is not None,
        tile_rows=plan.tile_rows,
        tile_outputs=plan.tile_outputs,
        round_inputs=ROUND_INPUTS,
        num_warps=plan.warps,
        num_stages=plan.stages,
        **constants,
    )


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return MULTIPROCESSORS_WITHOUT_GPU
    return torch.cuda.get_device_properties(device).multi_processor_count
