"""Every shipped shape of the Triton kernel compiles for sm_90 and keeps to registers."""

import re
import subprocess
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.paged_attention_triton import TileShape, paged_attention_kernel, tile_shape

SHARED_BYTES_MAX = 64 * 1024
"""A quarter of an sm_90 multiprocessor's, so that three programs fit on one."""
POINTERS = ("query", "key_pool", "value_pool", "output")
INTEGER_POINTERS = (
    "query_starts", "context_lengths", "block_tables", "tile_sequences", "tile_offsets",
)  # fmt: skip
PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


def compiled(
    element: str, sharing: int, head_size: int, shape: TileShape
) -> triton.compiler.CompiledKernel:
    """The kernel for sm_90 with arguments as the wrapper passes them."""
    constants = {
        "sharing": sharing,
        "head_size": head_size,
        "block_tokens": 16,
        "tile_tokens": shape.tokens,
        "tile_rows": shape.rows,
        "round_keys": shape.keys,
    }
    types = dict.fromkeys(paged_attention_kernel.arg_names, "i32")
    types |= dict.fromkeys(POINTERS, f"*{element}") | dict.fromkeys(INTEGER_POINTERS, "*i32")
    types |= {"scale_log2": "fp32"} | dict.fromkeys(constants, "constexpr")
    return triton.compile(
        ASTSource(paged_attention_kernel, signature=types, constexprs=constants),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": shape.warps},
    )


@pytest.mark.parametrize("element", ["fp32", "bf16"])
@pytest.mark.parametrize(("sharing", "head_size"), [(3, 64), (4, 128)])
@pytest.mark.parametrize("query_tokens_max", [1, 256], ids=["decode", "prefill"])
def test_the_kernel_spills_nothing_and_leaves_room_in_shared_memory(
    element: str,
    sharing: int,
    head_size: int,
    query_tokens_max: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = compiled(element, sharing, head_size, tile_shape(sharing, query_tokens_max))
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(kernel.asm["ptx"])

    report = subprocess.run(
        [PTXAS, "-v", "--gpu-name=sm_90a", ptx, "-o", tmp_path / "kernel.cubin"],
        check=True,
        capture_output=True,
        text=True,
    ).stderr

    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", report)
    assert spilled == ["0", "0"]
    assert 0 < kernel.metadata.shared <= SHARED_BYTES_MAX


@pytest.mark.parametrize("sharing", [1, 2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("query_tokens_max", [1, 2, 256])
def test_a_tile_holds_its_rows(sharing: int, query_tokens_max: int) -> None:
    shape = tile_shape(sharing, query_tokens_max)

    assert 1 <= shape.tokens * sharing <= shape.rows
    assert shape.rows & (shape.rows - 1) == 0
