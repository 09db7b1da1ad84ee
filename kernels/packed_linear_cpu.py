"""Rows times a packed weight on the CPU, by the products that torch ships for it.

Floats of 32 bits and bfloat16 are oneDNN's, float16 and eight bits FBGEMM's, four bits torch's own,
which rounds rows to bfloat16. A row's result is bit for bit its own, whoever its neighbours are:
the projections rely on it, the prefix cache and seeded answers on them.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import pad

from kernels.quantized_linear import GROUP, INT4_MAX, QuantizedWeight, dequantize

ROW_LEVELS = 63
"""A row is rounded to -63 .. 63 of its largest element. With eight bits FBGEMM's AVX2 kernel, which
adds two products in sixteen, saturates: 2 * 127 * 127 is the most that fits."""
ROW_ZERO_POINT = 64
REST_SCALE = 1 / (2 * ROW_LEVELS)
"""Rounding leaves at most half a level; the rest is made 126 times as large to be rounded too."""
INT4_OUTPUTS_MULTIPLE = 16
"""torch's four-bit product packs so many outputs together."""

ROWS_MIN = 4
"""oneDNN takes 41 ms a step for 1 row of SmolLM2 in float32, 37 for 2 or 3, and 24 for 4; one row
alone also rounds otherwise. So fewer are padded."""
PACKED_FOR_ROWS = 16
"""What oneDNN arranges a weight for; it makes no difference to other numbers of rows."""

# torch has no public names for these; its version is pinned.
_pack_float: Callable[[torch.Tensor, int], torch.Tensor] = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
_float_product: Callable[..., torch.Tensor] = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
_pack_int4: Callable[[torch.Tensor, int], torch.Tensor] = (
    torch.ops.aten._convert_weight_to_int4pack_for_cpu.default  # noqa: SLF001
)
_int4_product: Callable[[torch.Tensor, torch.Tensor, int, torch.Tensor], torch.Tensor] = (
    torch.ops.aten._weight_int4pack_mm_for_cpu.default  # noqa: SLF001
)
_pack_float16: Callable[[torch.Tensor, None], torch.ScriptObject] = (
    torch.ops.quantized.linear_prepack_fp16.default
)
_float16_product: Callable[[torch.Tensor, torch.ScriptObject], torch.Tensor] = (
    torch.ops.quantized.linear_dynamic_fp16.default
)
_pack_int8: Callable[[torch.Tensor, None], torch.ScriptObject] = (
    torch.ops.quantized.linear_prepack.default
)
_int8_product: Callable[[torch.Tensor, float, int, torch.ScriptObject], torch.Tensor] = (
    torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
)


def fbgemm_supported() -> bool:
    """Whether this build of torch has FBGEMM (x86 builds do)."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def onednn_supported() -> bool:
    """Whether this build of torch has oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def bfloat16_supported() -> bool:
    """Whether the processor multiplies bfloat16; emulated, it is slower than float32."""
    return onednn_supported() and bool(torch.cpu._is_avx512_bf16_supported())  # noqa: SLF001


def int4_fits(outputs: int, inputs: int) -> bool:
    """Whether the four-bit product takes a weight of this shape."""
    return outputs % INT4_OUTPUTS_MULTIPLE == 0 and inputs % GROUP == 0


class FloatLinear:
    """A weight [outputs, inputs] in float32 or bfloat16. float32 rows [n, inputs] to [n, outputs].

    Packed once, oneDNN takes 61 ms a step of SmolLM2 for 16 rows in float32 where MKL takes 100,
    and 34 in bfloat16.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self._dtype = weight.dtype
        self._outputs = weight.shape[0]
        self._packed = _pack_float(weight, PACKED_FOR_ROWS)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, inputs] to [n, outputs]."""
        count = rows.shape[0]
        if not count:
            return rows.new_empty((0, self._outputs))
        padded = pad(rows, (0, 0, 0, ROWS_MIN - count)) if count < ROWS_MIN else rows
        operands = padded.to(self._dtype)
        product = _float_product(operands, self._packed, None, "none", [], "")
        return product[:count].to(rows.dtype)


class Float16Linear:
    """A weight [outputs, inputs] rounded to float16. float32 rows [n, inputs] to [n, outputs]."""

    def __init__(self, weight: torch.Tensor) -> None:
        with _fbgemm():
            self._packed = _pack_float16(weight, None)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, inputs] to [n, outputs]."""
        return _float16_product(rows, self._packed)


class Int8Linear:
    """A weight packed for FBGEMM. Called with float32 rows [n, inputs]: [n, outputs].

    Plain dynamic quantization takes one scale for all rows, and the first token of a SmolLM2 prompt
    reaches 3,065 where others stay under 34: its neighbours' answers were noise. So each row has
    its own scale. It also goes as two, its rounding and what the rounding left: rows of seven bits
    change SmolLM2's next-token distributions by a divergence of 0.18, rows of two parts by 0.006,
    all of which is the weight's own rounding. Few rows read memory all the same.
    """

    def __init__(self, weight: QuantizedWeight) -> None:
        self._packed = _packed_int8(weight)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, inputs] to [n, outputs]."""
        count = rows.shape[0]
        # Of 16 rows vector_norm takes 4.5 ms a step of SmolLM2 for the same, this 0.6.
        levels: torch.Tensor = rows.abs().amax(dim=1, keepdim=True).div_(ROW_LEVELS)
        parts = rows.new_empty((2 * count, rows.shape[1]))
        whole, rest = parts[:count], parts[count:]
        # A row of zeros becomes NaN here, any integers in the product, and zeros again after it.
        torch.div(rows, levels, out=whole)
        torch.sub(whole, whole.round(), out=rest).div_(REST_SCALE)
        product = _int8_product(parts, 1.0, ROW_ZERO_POINT, self._packed)
        return product[:count].add_(product[count:], alpha=REST_SCALE).mul_(levels)


def _packed_int8(weight: QuantizedWeight) -> torch.ScriptObject:
    # An output of zeros has scale 0, which a quantized tensor must not have.
    scales = weight.scales.where(weight.scales != 0.0, 1.0).double()
    zero_points = torch.zeros(weight.outputs, dtype=torch.int64)
    with _fbgemm(), warnings.catch_warnings():
        # Some later torch will drop quantized tensors; ours is pinned. onednn.qlinear_pointwise
        # does without them, and takes half as long again for few rows.
        warnings.filterwarnings("ignore", message=".*quantize_per_channel.*deprecated")
        per_channel = torch.quantize_per_channel(
            dequantize(weight), scales, zero_points, 0, torch.qint8
        )
        return _pack_int8(per_channel, None)


@contextlib.contextmanager
def _fbgemm() -> Iterator[None]:
    """Packing asks the process which engine to pack for; what is packed remembers its own."""
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        yield
    finally:
        torch.backends.quantized.engine = engine


class Int4Linear:
    """A weight packed for torch's four-bit product. Called with rows [n, inputs]: [n, outputs].

    Raises ValueError for a shape that `int4_fits` refuses.
    """

    def __init__(self, weight: QuantizedWeight) -> None:
        if weight.minimums is None or not int4_fits(weight.outputs, weight.inputs):
            raise ValueError(f"[{weight.outputs}, {weight.inputs}] does not fit the 4-bit product")
        packed = weight.values.view(weight.outputs, -1, GROUP // 2)
        levels = torch.cat((packed & INT4_MAX, packed >> 4), dim=-1).view(weight.outputs, -1)
        self._packed = _pack_int4(levels.int(), 1)
        scales = weight.scales.float()
        # torch counts levels from the middle: (level - 8) * scale + middle.
        middles = weight.minimums.float() + 8.0 * scales
        self._scales = torch.stack((scales.T, middles.T), dim=-1).bfloat16().contiguous()

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """rows [n, inputs] to [n, outputs], in the dtype of the rows."""
        product = _int4_product(rows.bfloat16(), self._packed, GROUP, self._scales)
        return product.to(rows.dtype)
