"""Compiles a Triton kernel for a GPU that need not be there, and reads what it will occupy.

The cubin is the one a GPU of that kind would load: the same compiler, the bundled ptxas, and
arguments specialised as a launch would. Called by the compile tests of every kernel.
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
CAPABILITIES = (80, 90)
"""What every kernel is compiled for: A100 and H100 / H200."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """What one program takes. `stack_bytes` is local memory per thread: spilled registers."""

    registers: int
    stack_bytes: int
    shared_bytes: int


def compiled(
    kernel: triton.runtime.JITFunction,
    *,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    capability: int,
    warps: int = 4,
    stages: int = 3,
) -> Occupied:
    """Compiles `kernel` for sm_80 or sm_90.

    `types` names each argument that is no constexpr, as in `{"query": "*bf16:16", "rows": "i32"}`;
    ":16" says that a launch passes a multiple of 16 there (any whole tensor, most strides), which
    is what lets loads be wide. Raises whatever the compiler raises.
    """
    names = kernel.arg_names
    assert set(types) | set(constants) == set(names)
    multiples = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in types.items()
        if kind.endswith(":16")
    }
    signature = {
        name: "constexpr" if name in constants else types[name].removesuffix(":16")
        for name in names
    }
    source = ASTSource(kernel, signature=signature, constexprs=dict(constants), attrs=multiples)
    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        binary = triton.compile(
            source,
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": warps, "num_stages": stages},
        )
        return occupied_by(binary)


def occupied_by(binary: triton.compiler.CompiledKernel) -> Occupied:
    """What the bundled cuobjdump says of a compiled kernel."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(binary.asm["cubin"])
        report = subprocess.run(
            [CUOBJDUMP, "-res-usage", cubin], check=True, capture_output=True, text=True
        ).stdout
    used = {name: int(count) for name, count in re.findall(r"(REG|STACK|LOCAL):(\d+)", report)}
    return Occupied(
        registers=used["REG"],
        stack_bytes=used["STACK"] + used["LOCAL"],
        shared_bytes=binary.metadata.shared,
    )
