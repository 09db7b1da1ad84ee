"""Runs rows through the Triton rotary kernel in the interpreter; prints what differs as JSON.

A program of its own because Triton decides on the interpreter once, when it is imported. Stored
numbers are compared as they lie in the pool, so that also what must not be written is looked at.
"""

import json
import sys
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from kernels.float8 import FLOAT8_DECODED_SCALE, decode_float8, encode_float8
from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.operations import HeadNorms
from kernels.rotary import rotate_and_store_reference
from kernels.rotary_triton import rotate_and_store_triton
from tests.kernels.interpreter import repair_bfloat16

TYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((9, 3, 64), (4, 4, 128), (20, 1, 16))
BLOCKS, BLOCK_TOKENS = 5, 16


def empty_layer(kv_heads: int, head_size: int, stored_type: torch.dtype) -> KvLayer:
    """A pool whose every entry is 1, so that a write to a wrong place shows."""
    shape = (kv_heads, BLOCKS, BLOCK_TOKENS, head_size)
    keys, values = (torch.ones(shape).to(stored_type) for _ in range(2))
    if stored_type not in STORED_MAX:
        return KvLayer(keys, values)
    return KvLayer(keys, values, torch.ones(shape[:3]), torch.ones(shape[:3]))


def differences(
    dtype: torch.dtype, stored_type: torch.dtype, shape: tuple[int, int, int], *, normed: bool
) -> dict[str, float]:
    """Largest distances between kernel and reference, the latter given float32 rows."""
    heads, kv_heads, head_size = shape
    generator = torch.Generator().manual_seed(heads)
    slots = torch.tensor([17, 3, -1, 64, 79, 0, 16])
    stacked = heads + 2 * kv_heads
    # As a slice of a wider tensor: rows need not be adjacent.
    wide = torch.randn((len(slots), stacked + 1, head_size), generator=generator)
    wide[4] *= 100
    wide[1, heads] = 0
    qkv = wide.to(dtype)[:, :stacked]
    angles = torch.randn((len(slots), head_size // 2), generator=generator) * 9
    weights = torch.rand((2, head_size), generator=generator).to(dtype)
    norms = HeadNorms(weights[0], weights[1], 1e-5) if normed else None
    layers = [empty_layer(kv_heads, head_size, stored_type) for _ in range(2)]
    inputs = (angles.cos(), angles.sin(), slots)

    rotated = rotate_and_store_triton(qkv, *inputs, layers[0], norms)

    assert rotated.dtype == dtype
    expected = rotate_and_store_reference(qkv.float(), *inputs, layers[1], norms)
    found = {"query": relative(rotated, expected)}
    for name in ("keys", "values", "key_scales", "value_scales"):
        actual, wanted = (getattr(layer, name) for layer in layers)
        if actual is not None:
            found[name] = relative(actual, wanted)
    return found


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error by the size of what it is in, or of the head's largest in a pool."""
    sizes = expected.float().abs()
    if expected.dim() == 4:
        sizes = sizes.amax(-1, keepdim=True)
    return float(((actual.float() - expected.float()).abs() / sizes.clamp(min=1e-3)).max())


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def float8_there_and_back_kernel(values, codes, decoded, count: tl.constexpr):  # type: ignore[no-untyped-def]
    """Encodes and decodes `count` values in one program."""
    places = tl.arange(0, count)
    code = encode_float8(tl.load(values + places))
    tl.store(codes + places, code)
    tl.store(decoded + places, decode_float8(code).to(tl.float32) * FLOAT8_DECODED_SCALE)


def float8_differences() -> dict[str, float]:
    """How many of all float8 numbers, what lies between them and others differ from torch's."""
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = numbers[numbers.isfinite()].sort().values
    between = (numbers[1:] + numbers[:-1]) / 2
    generator = torch.Generator().manual_seed(8)
    others = torch.randn(4096, generator=generator) * 10 ** torch.linspace(-4, 2.2, 4096)
    values = torch.cat((numbers, between, between * 1.0001, between * 0.9999, others))
    count = 8192
    values = torch.nn.functional.pad(values.clamp(-448, 448), (0, count - len(values)))
    codes, decoded = torch.empty(count, dtype=torch.uint8), torch.empty(count)
    float8_there_and_back_kernel[(1,)](values, codes, decoded, count)
    expected = values.to(torch.float8_e4m3fn)
    return {
        "encoded": float((codes != expected.view(torch.uint8)).sum()),
        "decoded": float((decoded != expected.float()).sum()),
    }


def results() -> Iterator[tuple[str, dict[str, float]]]:
    """(name, differences) of everything that the tests ask for."""
    yield "float8", float8_differences()
    for dtype in TYPES:
        for stored_type in (dtype, *STORED_MAX):
            yield (
                f"{dtype}-{stored_type}",
                differences(dtype, stored_type, SHAPES[0], normed=True),
            )
    for shape in SHAPES:
        for stored_type in (torch.float32, torch.int8):
            name = f"{'-'.join(map(str, shape))}-{stored_type}"
            yield name, differences(torch.float32, stored_type, shape, normed=False)


if __name__ == "__main__":
    repair_bfloat16()
    json.dump(dict(results()), sys.stdout)
