"""Norms, the gated activation and rotary positions with the KV write, against their references."""

from functools import partial

import torch

from benchmarks.gpu_check.correct_attention import short
from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.sizes import Sizes
from benchmarks.gpu_check.timing import Place
from kernels.activation import silu_mul_reference
from kernels.activation_triton import silu_mul_triton
from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.normalization import add_rms_norm_reference, rms_norm_reference
from kernels.normalization_triton import add_rms_norm_triton, rms_norm_triton
from kernels.operations import HeadNorms
from kernels.rotary import rotate_and_store_reference
from kernels.rotary_triton import rotate_and_store_triton

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EPSILON = 1e-5
STEPS_MAX = {torch.float32: 16.0, torch.bfloat16: 1.01, torch.float16: 1.01}
"""In steps of the dtype; exponentials and quotients of a GPU are good to a few of float32."""
TURNED_MAX = {torch.float32: 1e-5, torch.bfloat16: 1.02 * 2**-8, torch.float16: 1.02 * 2**-11}
STORED_MAX_OFF = TURNED_MAX | {torch.int8: 1.01 / 127, torch.float8_e4m3fn: 1.01 * 32 / 448}
"""By the largest of each head: one step of the format, since sums in another order may round a
number to its neighbour."""
SCALES_MAX_OFF = 1e-5
BLOCK_TOKENS = 16


def run(section: Section, place: Place, sizes: Sizes) -> None:
    """All of them, in every dtype and KV format."""
    for dtype in DTYPES:
        for rows, size in sizes.norms:
            name = f"{short(dtype)} {rows}x{size}"
            section.attempt(name, partial(check_norms, section, place, dtype, rows, size, name))
    for shape in sizes.rotary:
        for dtype in DTYPES:
            for stored_type in (dtype, *STORED_MAX):
                name = f"rotary {short(dtype)} {shape}, {short(stored_type)} KV"
                rows = sizes.rotary_rows
                check = partial(check_rotary, section, place, dtype, stored_type, shape, rows, name)
                section.attempt(name, check)


def check_norms(
    section: Section, place: Place, dtype: torch.dtype, rows: int, size: int, name: str
) -> None:
    """Norm, sum and norm, and silu(gate) * up, of rows that lie apart."""
    generator = torch.Generator().manual_seed(size)
    wider = torch.randn(rows, 3 * size, generator=generator).to(place.device, dtype)
    wider[:, 2 * size :] = torch.nan
    hidden, delta, weight = wider[:, :size], wider[:, size : 2 * size], wider[0, :size].clone()
    expected = rms_norm_reference(hidden, weight, EPSILON)
    actual = rms_norm_triton(hidden, weight, EPSILON)
    section.check(f"norm {name}", steps_apart(actual, expected), STEPS_MAX[dtype], "steps")
    gate_up = wider[:, : 2 * size]
    actual, expected = silu_mul_triton(gate_up), silu_mul_reference(gate_up)
    section.check(f"silu {name}", steps_apart(actual, expected), STEPS_MAX[dtype], "steps")
    total, normed = add_rms_norm_reference(hidden, delta, weight, EPSILON)
    actual_total, actual = add_rms_norm_triton(hidden, delta, weight, EPSILON)
    assert torch.equal(actual_total, total), "the sum is not that of torch"
    section.check(f"sum and norm {name}", steps_apart(actual, normed), STEPS_MAX[dtype], "steps")


def check_rotary(
    section: Section,
    place: Place,
    dtype: torch.dtype,
    stored_type: torch.dtype,
    shape: tuple[int, int, int],
    rows: int,
    name: str,
) -> None:
    """Rotated queries and the whole pool, head norms on; a negative slot stores nothing."""
    heads, kv_heads, head_size = shape
    generator = torch.Generator().manual_seed(heads)
    stacked = heads + 2 * kv_heads
    wide = torch.randn((rows, stacked + 1, head_size), generator=generator)
    wide[1, heads] = 0
    qkv = wide.to(place.device, dtype)[:, :stacked]
    blocks = -(-rows // BLOCK_TOKENS) + 2
    slots = torch.randperm(blocks * BLOCK_TOKENS, generator=generator)[:rows]
    slots[2] = -1
    angles = torch.randn((rows, head_size // 2), generator=generator) * 9
    turns = (angles.cos().to(place.device), angles.sin().to(place.device), slots.to(place.device))
    weights = torch.rand((2, head_size), generator=generator).to(place.device, dtype)
    norms = HeadNorms(weights[0], weights[1], EPSILON)
    actual_pool, expected_pool = (
        empty_layer(place, (kv_heads, blocks, BLOCK_TOKENS, head_size), stored_type)
        for _ in range(2)
    )
    actual = rotate_and_store_triton(qkv, *turns, actual_pool, norms)
    expected = rotate_and_store_reference(qkv.float(), *turns, expected_pool, norms)
    section.check(f"{name}: queries", off_by_head(actual, expected), TURNED_MAX[dtype])
    worst = max(
        off_by_head(actual_pool.keys, expected_pool.keys),
        off_by_head(actual_pool.values, expected_pool.values),
    )
    section.check(f"{name}: stored", worst, STORED_MAX_OFF[stored_type])
    if stored_type in STORED_MAX:
        scales = (actual_pool.key_scales, expected_pool.key_scales)
        values = (actual_pool.value_scales, expected_pool.value_scales)
        worst = max(off_by_head(one, other) for one, other in (scales, values))  # type: ignore[arg-type]  # quantized layers have scales
        section.check(f"{name}: scales", worst, SCALES_MAX_OFF)


def empty_layer(place: Place, shape: tuple[int, ...], stored_type: torch.dtype) -> KvLayer:
    """A pool whose every entry is 1, so that a write to a wrong place shows."""
    keys, values = (torch.ones(shape, device=place.device).to(stored_type) for _ in range(2))
    if stored_type not in STORED_MAX:
        return KvLayer(keys, values)
    scales = [torch.ones(shape[:3], device=place.device) for _ in range(2)]
    return KvLayer(keys, values, *scales)


def steps_apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error in steps of the dtype at the expected value (at least at 1 / 64)."""
    steps = torch.finfo(expected.dtype).eps * expected.double().abs().clamp(min=1 / 64)
    return float(((actual.double() - expected.double()).abs() / steps).max())


def off_by_head(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error by the largest size along the last dimension."""
    sizes = expected.float().abs().amax(-1, keepdim=True).clamp(min=1e-3)
    return float(((actual.float() - expected.float()).abs() / sizes).max())
