"""Makes Triton's interpreter compute bfloat16 as a GPU does.

The interpreter keeps bfloat16 as integers: its dot multiplies those, integers become them by their
bits, and its rounding loses the carry out of a full mantissa. Called first by the programs that run
kernels under TRITON_INTERPRET.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def repair_bfloat16() -> None:
    """Conversions through torch, and dots on the values. For this process, once."""
    builder_type = interpreter.InterpreterBuilder
    convert, cast, dot = interpreter._convert_float, builder_type.cast_impl, builder_type.create_dot

    def convert_rightly(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if target == tl.bfloat16:
            wide = data if source == tl.float32 else convert(data, source, tl.float32, rounding)
            exact = torch.from_numpy(np.ascontiguousarray(wide).view(np.float32))
            return exact.bfloat16().view(torch.uint16).numpy()
        return convert(data, source, target, rounding)

    def cast_by_value(builder: Any, source: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16 and source.dtype.scalar.is_int():
            wide = source.data.astype(np.float32)
            return interpreter.TensorHandle(
                convert_rightly(wide, tl.float32, tl.bfloat16, None), tl.bfloat16
            )
        return cast(builder, source, target)

    def dot_of_values(builder: Any, a: Any, b: Any, *others: Any) -> Any:
        return dot(builder, _widened(a), _widened(b), *others)

    def _widened(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        wide = (operand.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(wide, tl.float32)

    interpreter._convert_float = convert_rightly
    builder_type.cast_impl = cast_by_value
    builder_type.create_dot = dot_of_values
