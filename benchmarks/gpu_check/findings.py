"""What a section finds: checks that hold or not, figures beside a bound, and what it left out.

A section writes each finding down as it comes, so that one that is killed or crashes the device
loses nothing; whatever raises inside of an attempt is a finding as well. Torch-free.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """`value` in `unit`, beside `bound`, which `against` names. `held` is None for what is no
    check; `remark` says what else is to be known."""

    section: str
    what: str
    value: float | None = None
    unit: str = ""
    against: str = ""
    bound: float | None = None
    held: bool | None = None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """The value over its bound."""
        if self.value is None or not self.bound:
            return None
        return self.value / self.bound


class Section:
    """Where one section of the check writes to, and how long it may go on."""

    def __init__(self, name: str, path: Path, *, seconds: float) -> None:
        self._name = name
        self._path = path
        self._ends_at_s = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Until nothing new is begun."""
        return self._ends_at_s - time.monotonic()

    def attempt(self, what: str, part: Callable[[], object]) -> bool:
        """Runs a part of the section unless time is up; whatever it raises is a failed check."""
        if self.seconds_left <= 0.0:
            self.note(what, "skipped: the time of this section was up")
            return False
        try:
            part()
        except Exception as error:  # noqa: BLE001  the other parts must go on; it fails the run
            traceback.print_exc(file=sys.stderr)
            self._write(Finding(self._name, what, held=False, remark=_short(error)))
            return False
        return True

    def check(self, what: str, error: float, most: float, unit: str = "") -> None:
        """A check: `error` (NaN never) at most `most`."""
        held = error <= most
        self._write(Finding(self._name, what, error, unit, "at most", most, held))

    def figure(
        self,
        what: str,
        value: float,
        unit: str,
        against: str = "",
        bound: float | None = None,
        remark: str = "",
    ) -> None:
        """A measured figure, and what it is compared with."""
        self._write(Finding(self._name, what, value, unit, against, bound, remark=remark))

    def note(self, what: str, remark: str) -> None:
        """Something to say that is neither."""
        self._write(Finding(self._name, what, remark=remark))

    def _write(self, finding: Finding) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(finding)) + "\n")


def read_findings(path: Path) -> list[Finding]:
    """What a section has written so far; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [Finding(**json.loads(line)) for line in lines]


def value_of(findings: Sequence[Finding], what: str) -> float | None:
    """The value of the finding of that name."""
    return next((finding.value for finding in findings if finding.what == what), None)


HEADS = ("section", "what", "value", "unit", "compared with", "its value", "ratio", "verdict")


def table(findings: Sequence[Finding]) -> str:
    """A Markdown table of them all."""
    rows = [HEADS, ("---",) * len(HEADS), *map(_cells, findings)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(finding: Finding) -> tuple[str, ...]:
    verdict = {True: "ok", False: "FAILED", None: ""}[finding.held]
    return (
        finding.section,
        finding.what,
        _number(finding.value),
        finding.unit,
        finding.against,
        _number(finding.bound),
        _number(finding.ratio),
        " ".join(filter(None, (verdict, finding.remark.replace("|", "/")))),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
