"""How the command ends: its exit codes, and the one error that carries one with its line of text.

Everything that goes wrong on purpose is raised as CommandStopped and printed once, by `main`.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What scripts can tell apart."""

    DONE = 0
    """All documents are summarised, or what was asked for is done."""
    SOME_FAILED = 1
    """The job ended, and some of its documents have no summary."""
    WRONG = 2
    """Nothing was started, or the job's input was refused: the command or its input is wrong."""
    STOPPED = 3
    """The job is cancelled, expired, paused, or goes on without us."""


class CommandStopped(Exception):
    """The command is over; the message is one line for people."""

    def __init__(self, message: str, code: ExitCode = ExitCode.WRONG) -> None:
        super().__init__(message)
        self.code = code
