"""Starts processes of the check, lets each go on for so long and no longer, says how they ended.

Imports no torch: whatever a GPU does to a process that uses it must not reach this one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_S = 0.1
SPARE_S = 3.0
"""Between the time at which a section begins nothing new and the one at which it is ended."""
LOG_LINES_MAX = 40


@dataclass(frozen=True, slots=True)
class Job:
    """Some sections in one process."""

    sections: tuple[str, ...]
    dry: bool

    @property
    def name(self) -> str:
        """The first of them names the log."""
        return self.sections[0]


class Running:
    """A job that has been started."""

    def __init__(self, job: Job, folder: Path, seconds: float) -> None:
        self.job = job
        self._seconds = seconds
        self._ends_at_s = time.monotonic() + seconds
        self._log = folder / f"{job.name}.log"
        command = [sys.executable, "-m", "benchmarks.gpu_check", "--folder", str(folder)]
        command += ["--seconds", str(max(1.0, seconds - SPARE_S)), *(["--dry"] if job.dry else [])]
        interprets = job.dry and not job.name.startswith("compiled")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--sections", *job.sections],
                cwd=REPOSITORY,
                env=os.environ | ({"TRITON_INTERPRET": "1"} if interprets else {}),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> bool:
        """Whether it has; it is ended, with all that it started, when its time is up."""
        if self._process.poll() is None and time.monotonic() > self._ends_at_s:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return self._process.returncode is not None

    @property
    def failure(self) -> str | None:
        """How it ended if it did not end by itself with success."""
        code = self._process.returncode
        if code == 0:
            return None
        if code == -signal.SIGKILL:
            return f"ended after {self._seconds:.0f} s"
        return f"died with status {code}"

    def log_tail(self) -> str:
        """The end of what it printed: tracebacks."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_MAX:])


def run_all(jobs: Sequence[Job], folder: Path, *, seconds: float, at_once: int) -> list[Running]:
    """Runs the jobs, in order, so many at a time, all within the given time."""
    ends_at_s = time.monotonic() + seconds
    waiting, running, ended = list(jobs), list[Running](), list[Running]()
    while waiting or running:
        while waiting and len(running) < at_once:
            left_s = max(SPARE_S, ends_at_s - time.monotonic())
            running.append(Running(waiting.pop(0), folder, left_s))
        time.sleep(POLL_S)
        ended += [process for process in running if process.ended()]
        running = [process for process in running if process not in ended]
    return ended
