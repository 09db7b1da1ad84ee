"""What checks of the whole books came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must never be: `query` selects the rows that break it, out of those of `table`."""

    broken_when: str
    table: str
    query: str


@dataclass(frozen=True, slots=True)
class InvariantReport:
    """One invariant of the books: how many rows of its table were looked at, and what broke it."""

    broken_when: str
    table: str
    rows: int
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What replaying the log came to: entries read, balances compared, and those that differ."""

    entries: int
    accounts: int
    differences: tuple[str, ...]
