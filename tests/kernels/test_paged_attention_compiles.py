"""Every shipped shape of the attention kernels compiles for sm_80 and sm_90 without spilling."""

import itertools

import pytest
import torch

from kernels.paged_attention_kernels import combine_splits_kernel, paged_attention_kernel
from kernels.paged_attention_plan import COMBINE_WARPS, SPLITS_MAX, TileShape, tile_shapes
from kernels.paged_attention_triton import value_type
from tests.kernels.compiled import CAPABILITIES, Occupied, compiled

SHARED_BYTES_MAX = 80 * 1024
"""Half of an A100 multiprocessor's, a third of an H200's: several programs fit on one."""
STACK_BYTES_MAX = 8
"""Two registers, which ptxas gives away to fit one more program on a multiprocessor."""
ELEMENTS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
INTEGERS = (
    "query_starts", "context_lengths", "block_tables", "tile_sequences", "tile_offsets",
    "split_tokens",
)  # fmt: skip
WHOLE, SPLIT = False, True
COMMON = [
    ("bf16", "same", 4, 128, SPLIT),
    ("bf16", "i8", 4, 128, SPLIT),
    ("bf16", "fp8", 4, 128, WHOLE),
    ("fp32", "same", 3, 64, SPLIT),
]
WIDEST = [
    (*formats, sharing, *size_and_split)
    for formats, sharing, size_and_split in itertools.product(
        itertools.product(("fp32", "bf16", "fp16"), ("same", "i8", "fp8")),
        (1, 8, 32),
        ((64, SPLIT), (128, WHOLE)),
    )
]


def attention_compiled(
    element: str,
    stored: str,
    sharing: int,
    head_size: int,
    *,
    split: bool,
    shape: TileShape,
    capability: int,
) -> Occupied:
    """The kernel with arguments as the wrapper passes them."""
    pool = {"same": element, "fp8": "fp8e4nv" if capability >= 89 else "u8"}.get(stored, stored)
    quantized = stored in ("i8", "fp8")
    query_type = ELEMENTS[element]
    constants = {
        "sharing": sharing,
        "head_size": head_size,
        "block_tokens": 16,
        "tile_tokens": shape.tokens,
        "tile_rows": shape.rows,
        "round_keys": shape.keys,
        "value_type": value_type(query_type, quantized=quantized),
        "split": split,
    }
    types = {"query": f"*{element}:16", "output": f"*{element}:16", "scale_log2": "fp32"}
    types |= {"key_pool": f"*{pool}:16", "value_pool": f"*{pool}:16", "table_stride": "i32"}
    types |= dict.fromkeys(("partials", "log_sums"), "*fp32:16")
    types |= dict.fromkeys(INTEGERS, "*i32:16")
    if quantized:
        types |= dict.fromkeys(("key_scales", "value_scales"), "*fp32:16")
    else:
        constants |= dict.fromkeys(("key_scales", "value_scales"))
    strides = set(paged_attention_kernel.arg_names) - set(types) - set(constants)
    return compiled(
        paged_attention_kernel,
        types=types | dict.fromkeys(strides, "i32:16"),
        constants=constants,
        capability=capability,
        warps=shape.warps,
        stages=shape.stages,
    )


def check_occupation(
    element: str, stored: str, sharing: int, head_size: int, split: bool, capability: int
) -> None:
    """Both shapes of one configuration."""
    for shape in tile_shapes(sharing, ELEMENTS[element].itemsize):
        occupied = attention_compiled(
            element, stored, sharing, head_size, split=split, shape=shape, capability=capability
        )

        assert occupied.stack_bytes <= STACK_BYTES_MAX
        assert 0 < occupied.shared_bytes <= SHARED_BYTES_MAX


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("element", "stored", "sharing", "head_size", "split"), COMMON)
def test_attention_spills_nothing_and_leaves_room_in_shared_memory(
    element: str, stored: str, sharing: int, head_size: int, split: bool, capability: int
) -> None:
    check_occupation(element, stored, sharing, head_size, split, capability)


@pytest.mark.long
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("element", "stored", "sharing", "head_size", "split"), WIDEST)
def test_attention_spills_nothing_in_any_configuration(
    element: str, stored: str, sharing: int, head_size: int, split: bool, capability: int
) -> None:
    check_occupation(element, stored, sharing, head_size, split, capability)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("splits_padded", [2, SPLITS_MAX])
def test_combining_splits_spills_nothing(splits_padded: int, capability: int) -> None:
    _, shape = tile_shapes(4, 2)
    integers = (*INTEGERS[:2], *INTEGERS[3:])

    occupied = compiled(
        combine_splits_kernel,
        types={"partials": "*fp32:16", "log_sums": "*fp32:16", "output": "*bf16:16"}
        | dict.fromkeys(integers, "*i32:16")
        | {"splits": "i32"},
        constants={
            "sharing": 4,
            "head_size": 128,
            "tile_tokens": shape.tokens,
            "tile_rows": shape.rows,
            "splits_padded": splits_padded,
        },
        capability=capability,
        warps=COMBINE_WARPS,
    )

    assert occupied.stack_bytes == 0
