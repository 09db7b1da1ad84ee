"""Rotation and the write into the pool: what the reference does, and the kernel with it."""

import pytest
import torch

from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.operations import HeadNorms
from kernels.rotary import check_rotary_shapes, quantized, rotate_and_store_reference
from kernels.rotary_triton import (
    TILE_ELEMENTS,
    rotate_and_store_kernel,
    rotate_and_store_triton,
)
from tests.kernels.compiled import CAPABILITIES, compiled
from tests.kernels.interpreted import interpreted
from tests.kernels.rotary_interpreted import SHAPES, empty_layer

Found = dict[str, dict[str, float]]
QUERY_ERROR_MAX = {"torch.float32": 4e-6, "torch.bfloat16": 2**-8, "torch.float16": 2**-11}
STORED_ERROR_MAX = {
    "torch.float32": 1e-6, "torch.bfloat16": 2**-8, "torch.float16": 2**-11,
    "torch.int8": 1.01 / 127, "torch.float8_e4m3fn": 2**-4,
}  # fmt: skip
"""One step of each format: sums in another order may round a number to its neighbour."""


@pytest.fixture(scope="module")
def found() -> Found:
    """What differs between kernel and reference, by what was computed."""
    differences: Found = interpreted("rotary_interpreted")
    return differences


@pytest.mark.parametrize("stored_type", ["same", "torch.int8", "torch.float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16", "torch.float16"])
def test_norms_rotation_and_store_agree_with_the_reference(
    dtype: str, stored_type: str, found: Found
) -> None:
    stored_type = dtype if stored_type == "same" else stored_type

    differences = found[f"{dtype}-{stored_type}"]

    assert differences["query"] <= QUERY_ERROR_MAX[dtype]
    assert differences["keys"] <= STORED_ERROR_MAX[stored_type]
    assert differences["values"] == 0
    assert differences.get("key_scales", 0) < 1e-6


@pytest.mark.parametrize("stored_type", ["torch.float32", "torch.int8"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_every_number_of_heads_is_rotated_and_stored(
    shape: tuple[int, int, int], stored_type: str, found: Found
) -> None:
    differences = found[f"{'-'.join(map(str, shape))}-{stored_type}"]

    assert differences["query"] < 1e-6
    assert max(differences["keys"], differences["values"]) <= STORED_ERROR_MAX[stored_type]


def test_float8_by_integers_is_torchs_float8(found: Found) -> None:
    assert found["float8"] == {"encoded": 0, "decoded": 0}


def test_the_reference_turns_each_pair_by_its_angle() -> None:
    qkv = torch.randn((3, 6, 8), generator=torch.Generator().manual_seed(1))
    angles = torch.tensor([[0.1, 2.0, -1.0, 0.0]] * 3)
    layer = empty_layer(2, 8, torch.float32)
    slots = torch.tensor([5, 16, 33])

    query = rotate_and_store_reference(qkv, angles.cos(), angles.sin(), slots, layer)

    pairs = torch.complex(qkv[..., :4], qkv[..., 4:])
    turned = pairs * torch.polar(torch.ones(3, 4), angles)[:, None]
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    assert torch.allclose(query, expected[:, :2], atol=1e-6)
    for row, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, 16)
        assert torch.allclose(layer.keys[:, block, offset], expected[row, 2:4], atol=1e-6)
        assert torch.equal(layer.values[:, block, offset], qkv[row, 4:])
    assert int((layer.keys != 1).any(-1).sum()) == 2 * 3


def test_the_reference_norms_queries_and_keys_but_no_values() -> None:
    qkv = torch.randn((1, 3, 8), generator=torch.Generator().manual_seed(2)) * 50
    still = (torch.ones((1, 4)), torch.zeros((1, 4)), torch.tensor([0]))
    layer = empty_layer(1, 8, torch.float32)
    norms = HeadNorms(torch.full((8,), 2.0), torch.full((8,), 3.0), 1e-6)

    query = rotate_and_store_reference(qkv, *still, layer, norms)

    normed = torch.nn.functional.rms_norm(qkv, (8,), eps=1e-6)
    assert torch.allclose(query, 2 * normed[:, :1], atol=1e-5)
    assert torch.allclose(layer.keys[0, 0, 0], 3 * normed[0, 1], atol=1e-5)
    assert torch.equal(layer.values[0, 0, 0], qkv[0, 2])


@pytest.mark.parametrize("stored_type", list(STORED_MAX), ids=str)
def test_quantized_rows_come_back_within_half_a_step(stored_type: torch.dtype) -> None:
    rows = torch.randn((50, 64), generator=torch.Generator().manual_seed(3))
    rows *= 10 ** torch.linspace(-6, 6, 50)[:, None]
    rows[7] = 0

    stored, scales = quantized(rows, stored_type)

    error = (stored.float() * scales[:, None] - rows).abs().amax(-1)
    largest_step = 1 if stored_type is torch.int8 else 32
    assert (error <= 0.51 * largest_step * scales).all()
    assert scales[7] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qkv": torch.zeros(2, 4, 16)}, "does not fit the pool"),
        ({"qkv": torch.zeros(2, 6, 8)}, "does not fit the pool"),
        ({"cosines": torch.zeros(2, 16)}, "float32 of"),
        ({"sines": torch.zeros(2, 8, dtype=torch.float64)}, "float32 of"),
        ({"slots": torch.zeros(2, dtype=torch.int32)}, "int64"),
        ({"layer": KvLayer(*(torch.zeros(2, 5, 16, 16, dtype=torch.int8),) * 2)}, "has scales"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "qkv": torch.zeros(2, 6, 16),
        "cosines": torch.zeros(2, 8),
        "sines": torch.zeros(2, 8),
        "slots": torch.zeros(2, dtype=torch.int64),
        "layer": empty_layer(2, 16, torch.float32),
    }

    with pytest.raises(ValueError, match=message):
        check_rotary_shapes(**(arguments | change))  # type: ignore[arg-type]  # one case is wrong


def test_layouts_the_kernel_cannot_read_are_refused() -> None:
    tables = torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    qkv, layer = torch.zeros(2, 6, 16), empty_layer(2, 16, torch.float32)
    scattered = layer.keys.transpose(1, 2).contiguous().transpose(1, 2)

    with pytest.raises(ValueError, match="heads of a row"):
        rotate_and_store_triton(qkv.transpose(1, 2).contiguous().transpose(1, 2), *tables, layer)
    with pytest.raises(ValueError, match="laid out alike"):
        rotate_and_store_triton(qkv, *tables, KvLayer(layer.keys, scattered))
    with pytest.raises(ValueError, match="cosines, sines and slots"):
        rotate_and_store_triton(qkv, torch.zeros(2, 16)[:, ::2], *tables[1:], layer)
    with pytest.raises(ValueError, match="head size 24"):
        rotate_and_store_triton(
            torch.zeros(2, 6, 24),
            torch.zeros(2, 12),
            torch.zeros(2, 12),
            tables[2],
            empty_layer(2, 24, torch.float32),
        )


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("stored", ["bf16", "i8", "u8"])
def test_the_kernel_spills_nothing(stored: str, normed: bool, capability: int) -> None:
    quantizes = stored in ("i8", "u8")
    pointers = dict.fromkeys(("query_norm", "key_norm"), "*bf16:16") if normed else {}
    if quantizes:
        pointers |= dict.fromkeys(("key_scales", "value_scales"), "*fp32:16")
    optional = ("query_norm", "key_norm", "key_scales", "value_scales")
    strides = ("row_stride", "pool_head_stride", "pool_block_stride", "scales_head_stride")

    occupied = compiled(
        rotate_and_store_kernel,
        types={"qkv": "*bf16:16", "rotated": "*bf16:16", "slots": "*i64:16", "epsilon": "fp32"}
        | dict.fromkeys(("cosines", "sines"), "*fp32:16")
        | dict.fromkeys(("key_pool", "value_pool"), f"*{stored}:16")
        | dict.fromkeys(strides, "i32:16")
        | pointers,
        constants={
            "heads": 32,
            "kv_heads": 8,
            "half": 64,
            "block_tokens": 16,
            "tile_heads": TILE_ELEMENTS // 128,
        }
        | {name: None for name in optional if name not in pointers},
        capability=capability,
    )

    assert occupied.stack_bytes == 0
