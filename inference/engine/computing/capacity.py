"""How many KV blocks fit into the memory that is left beside the weights.

The arithmetic is pure and tested; beside it stands what the system says about its memory. Called by
the runner once, after the weights are loaded. It must never promise memory that a container's
limit withholds.
"""

from dataclasses import dataclass
from pathlib import Path

MEMORY_SHARE = {"cpu": 0.5, "cuda": 0.9}
"""Of what is free after weights and a full step. A CPU machine runs other things too, and a block
takes its memory only once it is written."""
POOL_TOKENS_MAX = 1 << 20
"""Bookkeeping costs about 200 bytes a block whether it is used or not."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """What a runner occupies: its weights, one KV block over all layers, and how many blocks."""

    weight_bytes: int
    block_bytes: int
    blocks: int

    @property
    def pool_bytes(self) -> int:
        """What the pool takes when every block has been written."""
        return self.block_bytes * self.blocks


class PoolTooSmall(Exception):
    """Not one block fits; the message says what is free and what a block takes."""


def blocks_that_fit(free_bytes: int, block_bytes: int, *, share: float, blocks_max: int) -> int:
    """Blocks that fit into `share` of the free bytes, at most `blocks_max`.

    Raises PoolTooSmall where that is none.
    """
    blocks = min(int(free_bytes * share) // block_bytes, blocks_max)
    if blocks < 1:
        raise PoolTooSmall(f"{free_bytes} bytes are free, and one KV block takes {block_bytes}")
    return blocks


def available_bytes(root: Path = Path("/")) -> int:
    """Memory this process may still take: the system's, or less by a limit of cgroup v2 above it.

    `root` is where proc and sys are mounted.
    """
    available = _meminfo_bytes(root / "proc/meminfo")
    limits_folder = root / "sys/fs/cgroup"
    for folder in _cgroup_folders(root / "proc/self/cgroup", limits_folder):
        limit, used = (_number(folder / name) for name in ("memory.max", "memory.current"))
        if limit is not None and used is not None:
            available = min(available, max(0, limit - used))
    return available


def _meminfo_bytes(path: Path) -> int:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise OSError(f"{path} names no MemAvailable")


def _cgroup_folders(membership: Path, limits_folder: Path) -> list[Path]:
    """The folder of our control group and of each group above it; none without cgroup v2."""
    if not membership.exists():
        return []
    for line in membership.read_text().splitlines():
        if line.startswith("0::/"):
            own = limits_folder / line.removeprefix("0::/")
            return [
                own,
                *(folder for folder in own.parents if folder.is_relative_to(limits_folder)),
            ]
    return []


def _number(path: Path) -> int | None:
    """None where there is no such file, or no limit in it ("max")."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
