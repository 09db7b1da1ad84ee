"""`python -m inference.server.trace --socket PATH`: the last steps of a running engine.

For operators: what each step took, who it was for, who was preempted. Prints a table, or with
`--json` a line per step; reads only, and leaves finishes that it is sent to whoever settles them.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from inference.contracts import StepTrace
from inference.protocol import (
    PROTOCOL_VERSION,
    Hello,
    ProtocolError,
    Trace,
    TraceRequest,
    encode,
    read_from_engine,
)
from inference.socket_address import socket_address

ANSWER_S = 10.0
COLUMNS = {
    "step": "step",
    "age s": "",
    "ms": "duration_ms",
    "running": "running",
    "waiting": "waiting",
    "interactive": "interactive_tokens",
    "batch": "batch_tokens",
    "preempted": "preempted",
}
"""Column heads and the fields below them; the age is counted from the last step."""


def main(argv: Sequence[str]) -> int:
    """Prints a trace; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m inference.server.trace", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="the engine's unix socket")
    parser.add_argument("--steps", type=int, default=50, help="how many of the last steps")
    parser.add_argument("--json", action="store_true", help="a JSON object per step")
    arguments = parser.parse_args(argv)
    try:
        steps = asyncio.run(read_trace(arguments.socket))[-max(arguments.steps, 1) :]
    except (OSError, ProtocolError, TimeoutError) as error:
        sys.stderr.write(f"{arguments.socket}: {error or type(error).__name__}\n")
        return 1
    lines = [msgspec.json.encode(step).decode() for step in steps]
    sys.stdout.write(("\n".join(lines) if arguments.json else table(steps)) + "\n")
    return 0


async def read_trace(socket_path: Path) -> list[StepTrace]:
    """Asks the engine on this socket for its last steps, oldest first.

    Raises OSError, ProtocolError, or TimeoutError after ANSWER_S.
    """
    async with asyncio.timeout(ANSWER_S):
        with socket_address(socket_path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            hello = await read_from_engine(reader)
            if not isinstance(hello, Hello) or hello.protocol != PROTOCOL_VERSION:
                raise ProtocolError(f"it does not speak protocol {PROTOCOL_VERSION}")
            writer.write(encode(TraceRequest()))
            while (frame := await read_from_engine(reader)) is not None:
                if isinstance(frame, Trace):
                    return frame.steps
            raise ProtocolError("the engine hung up")
        finally:
            writer.close()


def table(steps: Sequence[StepTrace]) -> str:
    """One line per step under a line of heads."""
    lines = [" ".join(f"{head:>11}" for head in COLUMNS)]
    for step in steps:
        age_s = steps[-1].ended_at_s - step.ended_at_s
        cells = (getattr(step, field) if field else age_s for field in COLUMNS.values())
        lines.append(" ".join(f"{c:>11.1f}" if isinstance(c, float) else f"{c:>11}" for c in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
