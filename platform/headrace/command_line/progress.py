"""What people see of a job while it runs: a bar on a terminal, plain lines elsewhere.

Speaks to standard error only, so that results can be piped. Called by the rest of the command.
"""

import re
import time
from collections.abc import Callable
from typing import TextIO

from tqdm import tqdm

from headrace.command_line.jobs import Job

PLAIN_S = 10
"""Between two plain lines of one state."""
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that override the direction of what follows."""
BAR = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}{postfix}"


def printable(text: str) -> str:
    """`text` for people: without what could steer a terminal or turn its words around, but for
    newlines and tabs. What is written to files or pipes stays as it is."""
    return STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


class Progress:
    """One command's running commentary."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._bar: tqdm | None = None
        self._told = ("", -1)
        self._told_at = 0.0

    def say(self, line: str) -> None:
        """A line that stays."""
        line = printable(line)
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def show(self, job: Job) -> None:
        """How far the job is."""
        if self._stream.isatty() and job.total:
            self._draw(job)
            return
        told = (job.status, job.ended if job.status != "validating" else job.total)
        is_new_state = told[0] != self._told[0]
        if told != self._told and (is_new_state or self._clock() - self._told_at >= PLAIN_S):
            self._told, self._told_at = told, self._clock()
            self.say(_line(job))

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, job: Job) -> None:
        if self._bar is None:
            self._bar = tqdm(
                total=job.total,
                file=self._stream,
                bar_format=BAR,
                dynamic_ncols=True,
                unit_scale=False,
            )
        self._bar.total = job.total
        self._bar.n = 0 if job.status == "validating" else job.ended
        self._bar.set_description_str(job.status, refresh=False)
        self._bar.set_postfix_str(_measures(job), refresh=False)
        self._bar.refresh()


def _line(job: Job) -> str:
    if job.status == "validating":
        return f"reading the input: {job.total:,} documents so far"
    return f"{job.status}: {job.ended:,} of {job.total:,} documents, {_measures(job)}"


def _measures(job: Job) -> str:
    """Throughput, cost and remaining time, as far as they are known."""
    measures = []
    if job.documents_per_s:
        digits = 1 if job.documents_per_s >= 1 else 2
        measures.append(f"{job.documents_per_s:.{digits}f} docs/s")
    if job.tokens_per_s:
        measures.append(f"{job.tokens_per_s:,.0f} tokens/s")
    measures.append(f"{short_amount(job.amount)} {job.currency}")
    if job.remaining_s is not None:
        measures.append(f"{duration(job.remaining_s)} left")
    if job.failed:
        measures.append(f"{job.failed:,} failed")
    return ", ".join(measures)


def short_amount(amount: str) -> str:
    """A decimal cut to what people read: whole cents, or two digits that are not zero."""
    whole, point, decimals = amount.partition(".")
    if not point:
        return whole
    first = len(decimals) - len(decimals.lstrip("0"))
    return f"{whole}.{decimals[: max(2, first + 2)]}"


def duration(seconds: float) -> str:
    """5 s, 3 min, 2 h 10 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
