"""One child process of the supervisor, of a command or of a test.

It dies with its parent, however the parent dies; its output is kept in a log file and a short
tail, and it is stopped without leaving anything behind. Never touches a process it did not start.
"""

import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.standalone.data_folder import SetUpError

TAIL_LINES_MAX = 20
LOG_FILE_BYTES_MAX = 32 * 1024 * 1024
"""A log file past this is put aside as `.1` at the next start."""
LINE_BYTES_MAX = 64 * 1024


class Child:
    """A running child process. Create it from a thread that lives as long as the child should:
    the kernel delivers the death signal when the *thread* that forked it ends.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        log_file: Path,
        echo: Callable[[str, str], None] | None = None,
        input_text: str | None = None,
        death_signal: str = "KILL",
        prefix: Sequence[str] = (),
    ) -> None:
        """Starts `prefix + argv` in a session of its own.

        `death_signal` is what the kernel sends it when this process dies. `prefix` (a user
        namespace, say) comes first, because changing credentials clears the death signal.
        Each line of output goes to `log_file` and to `echo(name, line)`.
        """
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise SetUpError("`setpriv` is missing: install the package util-linux")
        self.name = name
        self._tail: deque[str] = deque(maxlen=TAIL_LINES_MAX)
        self._watchers: list[tuple[str, threading.Event]] = []
        self._echo = echo
        if log_file.exists() and log_file.stat().st_size > LOG_FILE_BYTES_MAX:
            log_file.replace(log_file.with_suffix(".log.1"))
        self._log_file = log_file
        self._process = subprocess.Popen(
            [*prefix, setpriv, "--pdeathsig", death_signal, "--", *argv],
            env=dict(environment),
            stdin=subprocess.PIPE if input_text is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if input_text is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(input_text.encode())
            self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, name=f"log {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def line_seen(self, text: str) -> threading.Event:
        """An event set once a line of output contains `text`; the kept tail counts."""
        seen = threading.Event()
        self._watchers.append((text, seen))
        if any(text in line for line in list(self._tail)):
            seen.set()
        return seen

    def send(self, number: signal.Signals) -> None:
        """Signals the process itself; no effect when it is gone."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace_s: float, number: signal.Signals = signal.SIGTERM) -> None:
        """Asks it to end with `number`, kills its whole session after `grace_s`, and reaps it."""
        if self.exit_code is None:
            self.send(number)
            if not self.wait(grace_s):
                self.kill()
        self._reader.join(timeout=5)

    def kill(self) -> None:
        """SIGKILL to its session, then reaps it."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def last_lines(self) -> list[str]:
        """The end of its output."""
        if self.exit_code is not None:
            self._reader.join(timeout=5)
        return list(self._tail)

    def cause_of_death(self) -> str:
        """How it ended, in words."""
        code = self.exit_code
        if code is None:
            return "still running"
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"exit code {code}"

    def _read(self) -> None:
        output = self._process.stdout
        assert output is not None
        with self._log_file.open("ab", buffering=0) as log:
            while raw := output.readline(LINE_BYTES_MAX):
                log.write(raw)
                line = raw.decode(errors="replace").rstrip()
                self._tail.append(line)
                for text, seen in list(self._watchers):
                    if text in line:
                        seen.set()
                if self._echo is not None:
                    self._echo(self.name, line)
        output.close()
