"""float8_e4m3fn by integer arithmetic, for Triton kernels on cards that do not know it.

A100s (sm_80) have no such conversion and Triton refuses the type there; the interpreter rounds it
wrongly. Called by the attention and rotary kernels; takes no NaN, which a scaled value never is.
"""

import triton
import triton.language as tl

FLOAT8_MAX = tl.constexpr(448.0)
FLOAT8_DECODED_SCALE = tl.constexpr(256.0)
"""What a decoded value must still be multiplied by: float16's exponent is biased by 8 more."""


@triton.jit
def decode_float8(stored):  # type: ignore[no-untyped-def]  # a tile of uint8
    """Bits of float8_e4m3fn to float16, divided by FLOAT8_DECODED_SCALE; exact."""
    bits = stored.to(tl.int16)
    return (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)


@triton.jit
def encode_float8(values):  # type: ignore[no-untyped-def]  # a tile of float32
    """float32 of at most FLOAT8_MAX to bits of float8_e4m3fn, to the nearest, ties to even."""
    bits = values.to(tl.int32, bitcast=True)
    size = tl.abs(values)
    size_bits = size.to(tl.int32, bitcast=True)
    # 23 bits of mantissa to 3, and an exponent biased by 127 to one biased by 7.
    normal = ((size_bits + 0x7FFFF + ((size_bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 the steps are even, of 2^-9: the last bit of any float32 in [2^14, 2^15).
    subnormal = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(size < 0.015625, subnormal, tl.minimum(normal, 0x7E))
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
