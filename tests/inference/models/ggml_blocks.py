"""An independent reading of ggml's block formats: the bytes of one block to its numbers.

Number by number in plain loops, by the layouts that ggml-common.h describes; the
tests compare it with what the weights' reader makes of the same bytes.
"""

import struct
from collections.abc import Callable


def _half(block: bytes, at: int) -> float:
    (number,) = struct.unpack_from("<e", block, at)
    return float(number)


def _bit(mask: int, index: int) -> int:
    return mask >> index & 1


def q4_0(block: bytes) -> list[float]:
    scale, quants = _half(block, 0), block[2:]
    return [scale * ((q & 15) - 8) for q in quants] + [scale * ((q >> 4) - 8) for q in quants]


def q4_1(block: bytes) -> list[float]:
    scale, least, quants = _half(block, 0), _half(block, 2), block[4:]
    return [scale * (q & 15) + least for q in quants] + [scale * (q >> 4) + least for q in quants]


def _five_bits(high: int, quants: bytes) -> list[int]:
    low_half = [(q & 15) + 16 * _bit(high, index) for index, q in enumerate(quants)]
    return low_half + [(q >> 4) + 16 * _bit(high, index + 16) for index, q in enumerate(quants)]


def q5_0(block: bytes) -> list[float]:
    numbers = _five_bits(int.from_bytes(block[2:6], "little"), block[6:])
    return [_half(block, 0) * (number - 16) for number in numbers]


def q5_1(block: bytes) -> list[float]:
    numbers = _five_bits(int.from_bytes(block[4:8], "little"), block[8:])
    return [_half(block, 0) * number + _half(block, 2) for number in numbers]


def q8_0(block: bytes) -> list[float]:
    return [_half(block, 0) * number for number in struct.unpack_from("<32b", block, 2)]


def _scale_and_least(packed: bytes, group: int) -> tuple[int, int]:
    """Six bits each for eight groups, in twelve bytes."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    both = packed[group + 4]
    return (both & 15) | packed[group - 4] >> 6 << 4, (both >> 4) | packed[group] >> 6 << 4


def q4_k(block: bytes) -> list[float]:
    numbers = []
    for group in range(8):
        scale, least = _scale_and_least(block[4:16], group)
        for index in range(32):
            pair = block[16 + group // 2 * 32 + index]
            number = pair >> 4 if group % 2 else pair & 15
            numbers.append(_half(block, 0) * scale * number - _half(block, 2) * least)
    return numbers


def q5_k(block: bytes) -> list[float]:
    numbers = []
    for group in range(8):
        scale, least = _scale_and_least(block[4:16], group)
        for index in range(32):
            pair = block[48 + group // 2 * 32 + index]
            number = (pair >> 4 if group % 2 else pair & 15) + 16 * _bit(block[16 + index], group)
            numbers.append(_half(block, 0) * scale * number - _half(block, 2) * least)
    return numbers


def q6_k(block: bytes) -> list[float]:
    scales = struct.unpack_from("<16b", block, 192)
    numbers = []
    for index in range(256):
        half, quarter, place = index // 128, index % 128 // 32, index % 32
        low = block[half * 64 + quarter % 2 * 32 + place]
        low = low >> 4 if quarter > 1 else low & 15
        high = block[128 + half * 32 + place] >> 2 * quarter & 3
        scale = scales[index // 16]
        numbers.append(_half(block, 208) * scale * ((low | high << 4) - 32))
    return numbers


def f16(block: bytes) -> list[float]:
    return [_half(block, 0)]


def bf16(block: bytes) -> list[float]:
    return list(struct.unpack("<f", b"\0\0" + block))


def f32(block: bytes) -> list[float]:
    return list(struct.unpack("<f", block))


READERS: dict[str, Callable[[bytes], list[float]]] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "F16": f16,
    "BF16": bf16,
    "F32": f32,
}
HALF_SCALES_AT = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where a block's own scales lie, where that is not its start alone."""
