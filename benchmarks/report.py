"""How every benchmark prints: one table, and the machine it was measured on.

Ratios are what to trust: the machine may be shared, so both sides of a ratio come from one run.
"""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value beside what it is compared with; `wanted` is the ratio asked for."""

    name: str
    ours: float
    other_name: str
    other: float
    unit: str
    wanted: str

    @property
    def ratio(self) -> float:
        """Ours over the other."""
        return self.ours / self.other


def print_report(title: str, rows: Sequence[Row], *, threads: int) -> None:
    """A Markdown table and the machine line, to standard output."""
    print(f"\n### {title}\n")
    print("| measure | ours | compared with | value | unit | ratio | wanted |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.name} | {row.ours:.3g} | {row.other_name} | {row.other:.3g} "
            f"| {row.unit} | {row.ratio:.2f} | {row.wanted} |"
        )
    print(f"\nmachine: {machine()}, {threads} compute thread(s)")


def machine() -> str:
    """Processor, cores and how busy they are with other things."""
    cpu_info = Path("/proc/cpuinfo")
    model = platform.processor() or platform.machine()
    if cpu_info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpu_info.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
