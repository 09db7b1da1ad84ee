"""How every benchmark prints: one table, and the machine it was measured on.

Ratios are what to trust: the machine may be shared, so both sides of a ratio come from one run.
"""

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value beside what it is compared with; `wanted` is the ratio asked for,
    as in ">= 2", or empty."""

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

    @property
    def verdict(self) -> str:
        """Whether the ratio is what was asked for; empty where nothing was."""
        if not self.wanted:
            return ""
        relation, bound = self.wanted.split()
        met = {">=": self.ratio >= float(bound), "<=": self.ratio <= float(bound)}
        return "met" if met[relation] else "MISSED"


def print_report(title: str, rows: Sequence[Row], *, threads: int) -> None:
    """A Markdown table and the machine line, to standard output."""
    print(f"\n### {title}\n")
    print_table(
        ("measure", "ours", "compared with", "value", "unit", "ratio", "wanted", ""),
        [
            (
                row.name,
                f"{row.ours:.3g}",
                row.other_name,
                f"{row.other:.3g}",
                row.unit,
                f"{row.ratio:.2f}",
                row.wanted,
                row.verdict,
            )
            for row in rows
        ],
    )
    print(f"\nmachine: {machine()}, {threads} compute thread(s)", flush=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table, to standard output."""
    print(f"| {' | '.join(heads)} |")
    print(f"|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


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
