"""silu(gate) * up on GPU: elementwise, in float32 whatever the dtype, without a copy of either.

Called by `operations_triton`.
"""

import torch
import triton
import triton.language as tl

from kernels.activation import check_gate_up

SPAN = 1024
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def silu_mul_kernel(gate_up, output, row_stride, size, span: tl.constexpr):  # type: ignore[no-untyped-def]  # types are those of each launch
    """A program computes `span` elements of one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * span + tl.arange(0, span)
    inside = columns < size
    places = gate_up + row * row_stride + columns
    gate = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(places + size, mask=inside, other=0.0).to(tl.float32)
    gated = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(output + row * size + columns, gated.to(output.dtype.element_ty), mask=inside)


def silu_mul_triton(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up for gate_up [rows, 2 * size] = gate beside up: [rows, size], its dtype.

    Raises ValueError for another shape or rows that are not dense.
    """
    check_gate_up(gate_up)
    if gate_up.stride(1) != 1:
        raise ValueError("each row must be dense")
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    output = gate_up.new_empty(rows, size)
    if rows:
        silu_mul_kernel[(rows, triton.cdiv(size, SPAN))](
            gate_up, output, gate_up.stride(0), size, span=SPAN, num_warps=WARPS
        )
    return output
