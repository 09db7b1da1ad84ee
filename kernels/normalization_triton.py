"""RMS normalization on GPU, alone or fused with the residual addition before it: a program a row.

Reads each row once. Sums are float32 whatever the dtype, and what is normalized is the sum as it is
stored, so the fused kernel equals an addition followed by a norm. Called by `operations_triton`.
"""

import torch
import triton
import triton.language as tl

from kernels.normalization import check_norm_shapes, check_same_kind

SIZE_MAX = 16384
"""Widest row that a program holds in registers: 32 elements in each of 512 threads."""


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def rms_norm_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    hidden,
    delta,
    weight,
    output,
    hidden_stride,
    delta_stride,
    size,
    epsilon,
    adds: tl.constexpr,
    span: tl.constexpr,
):
    """With `adds`, hidden becomes hidden + delta in place first; `span` is a power of two."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, span)
    inside = columns < size
    places = hidden + row * hidden_stride + columns
    values = tl.load(places, mask=inside, other=0.0)
    if adds:
        added = tl.load(delta + row * delta_stride + columns, mask=inside, other=0.0)
        values = (values.to(tl.float32) + added.to(tl.float32)).to(hidden.dtype.element_ty)
        tl.store(places, values, mask=inside)
    values = values.to(tl.float32)
    scales = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(values * values) / size + epsilon)
    normed = values * inverse * scales
    tl.store(output + row * size + columns, normed.to(output.dtype.element_ty), mask=inside)


def norm_shape(size: int) -> tuple[int, int]:
    """(span, warps) for rows of `size`: at most 32 elements a thread. Raises ValueError if wider
    than SIZE_MAX."""
    if size > SIZE_MAX:
        raise ValueError(f"rows of {size} are wider than {SIZE_MAX}")
    span = triton.next_power_of_2(size)
    return span, min(16, max(1, span // 512))


def rms_norm_triton(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """hidden [rows, size] over its root mean square, times weight [size], in hidden's dtype.

    Rows may lie apart but must be dense in themselves. Raises ValueError for what does not fit.
    """
    return _launch(hidden, None, weight, epsilon)


def add_rms_norm_triton(
    residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(residual + delta, written over `residual`; its RMS norm), both [rows, size].

    Raises ValueError for what does not fit.
    """
    check_same_kind(residual, delta)
    return residual, _launch(residual, delta, weight, epsilon)


def _launch(
    hidden: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, epsilon: float
) -> torch.Tensor:
    check_norm_shapes(hidden, weight)
    added = hidden if delta is None else delta
    if hidden.stride(1) != 1 or added.stride(1) != 1 or not weight.is_contiguous():
        raise ValueError("each row and the weight must be dense")
    rows, size = hidden.shape
    span, warps = norm_shape(size)
    output = hidden.new_empty(rows, size)
    if rows:
        rms_norm_kernel[(rows,)](
            hidden,
            added,
            weight,
            output,
            hidden.stride(0),
            added.stride(0),
            size,
            epsilon,
            adds=delta is not None,
            span=span,
            num_warps=warps,
        )
    return output
