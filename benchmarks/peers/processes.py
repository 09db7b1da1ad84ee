"""The compared engines as processes: which there are, and how a job is given to one.

All of them stay loaded and idle but the one that works, so that rounds of each can alternate on the
same core. Called by the comparison; a process that dies or hangs is that engine's failure alone.
"""

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peers.venvs import PeerMissing

WORKER = Path(__file__).parent / "worker.py"
REPOSITORY = WORKER.parents[2]
LOAD_S_MAX = 600
"""vLLM compiles for two minutes the first time."""
JOB_S_MAX = 600
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Contender:
    """One engine with its model and setting, and the interpreter that runs its module."""

    name: str
    python: Path
    module: str
    model: Path
    setting: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """(wall, processor) seconds until all prompts had a token, and of each step after that."""

    first_s: tuple[float, float]
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]


class Worker:
    """A running contender. A context manager; raises PeerMissing when it cannot go on."""

    def __init__(self, contender: Contender, *, core: int, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._log = logs / f"{contender.name.replace(' ', '-')}.log"
        command = (contender.python, WORKER, contender.module, contender.model, contender.setting)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*map(str, command), str(core)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **ONE_THREAD, "HF_HUB_OFFLINE": "1", **contender.environment},
            )

    def __enter__(self) -> Self:
        """Waits until the model is loaded."""
        self._answer(LOAD_S_MAX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Timing:
        """Answers all prompts at once, with as many tokens each."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(
                json.dumps({"prompts": prompts, "new_tokens": new_tokens}) + "\n"
            )
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerMissing(self._last_words()) from error
        answer = json.loads(self._answer(JOB_S_MAX))
        wall_s, cpu_s = answer["first_s"]
        return Timing((wall_s, cpu_s), tuple(answer["wall_s"]), tuple(answer["cpu_s"]))

    def _answer(self, seconds_max: float) -> str:
        assert self._process.stdout is not None
        timer = threading.Timer(seconds_max, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise PeerMissing(self._last_words())
        return line

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text().splitlines() if line.strip()]
        return lines[-1] if lines else f"exit status {self._process.wait()}"
