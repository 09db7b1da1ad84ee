"""The pool is as large as memory allows, and never larger than a container's limit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.computing.capacity import (
    MemoryFacts,
    PoolTooSmall,
    available_bytes,
    blocks_that_fit,
)

GIB = 1 << 30


@given(
    free=st.integers(1, 1 << 45),
    block=st.integers(1, 1 << 30),
    share=st.floats(0.01, 1.0),
    blocks_max=st.integers(1, 1 << 20),
)
def test_blocks_fit_their_share_and_one_more_would_not(
    free: int, block: int, share: float, blocks_max: int
) -> None:
    allowed = int(free * share)
    if allowed < block:
        with pytest.raises(PoolTooSmall):
            blocks_that_fit(free, block, share=share, blocks_max=blocks_max)
        return

    blocks = blocks_that_fit(free, block, share=share, blocks_max=blocks_max)

    assert 1 <= blocks <= blocks_max
    assert blocks * block <= allowed
    assert blocks == blocks_max or (blocks + 1) * block > allowed


def test_the_pool_takes_all_its_blocks() -> None:
    assert MemoryFacts(weight_bytes=5, block_bytes=1000, blocks=7).pool_bytes == 7000


def machine(root: Path, membership: str, limits: dict[str, tuple[str, str]]) -> Path:
    """A root with 8 GiB available and cgroup folders of (memory.max, memory.current)."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\n"
    )
    (root / "proc/self/cgroup").write_text(membership)
    for name, (limit, used) in limits.items():
        folder = root / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    return root


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {}, 8 * GIB),
        ("0::/\n", {"": (str(3 * GIB), str(GIB))}, 2 * GIB),
        ("0::/a/b\n", {"a/b": ("max", "5"), "a": (str(4 * GIB), str(GIB))}, 3 * GIB),
        ("0::/a\n", {"a": (str(GIB), str(2 * GIB))}, 0),
        ("0::/a\n", {"a": (str(64 * GIB), "0")}, 8 * GIB),
        ("12:memory:/a\n", {"a": (str(GIB), "0")}, 8 * GIB),
    ],
    ids=["no limit", "limit here", "limit above", "over it", "above memory", "cgroup v1"],
)
def test_a_container_limit_counts(
    tmp_path: Path, membership: str, limits: dict[str, tuple[str, str]], expected: int
) -> None:
    root = machine(tmp_path, membership, limits)

    assert available_bytes(root) == expected


def test_this_machine_has_memory() -> None:
    assert available_bytes() > 0
