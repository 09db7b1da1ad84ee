"""Where a request can be cut off: named steps at which a test has the process killed.

Inert unless HEADRACE_FAILPOINT_FILE names a file; the process that reaches the step written there
removes the file and dies by SIGKILL. Called by the pipeline; the crash matrix walks all steps.
"""

import enum
import os
import signal

from django.conf import settings


class Failpoint(enum.StrEnum):
    """The steps of a request, in order; each is reached when what it says has happened."""

    HELD = "held"
    SUBMITTED = "submitted"
    CHUNK_RECEIVED = "chunk_received"
    FINISH_RECEIVED = "finish_received"
    SETTLED = "settled"
    ACKNOWLEDGED = "acknowledged"


def reach(point: Failpoint) -> None:
    """Dies here if this is the step asked for."""
    if settings.FAILPOINT_FILE is None:
        return
    try:
        asked = settings.FAILPOINT_FILE.read_text()
    except FileNotFoundError:
        return
    if asked == point:
        settings.FAILPOINT_FILE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
