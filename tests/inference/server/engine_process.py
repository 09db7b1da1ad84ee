"""A real engine process on the real model, and a client of it."""

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inference.client.native import EngineClient
from inference.contracts import Finish
from inference.tokenizer.bundle import Bundle

START_S = 120.0
"""Loading takes about 6 s; test machines are slow and shared."""
EXIT_S = 30.0


@dataclass
class EngineProcess:
    """`python -m inference.server` with its socket and journal in `folder`."""

    bundle: Bundle
    folder: Path
    orphans: list[Finish] = field(default_factory=list)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a process; its log goes to the `log` file of the folder."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "inference.server"),
                    *("--bundle", str(self.bundle.folder)),
                    *("--socket", str(self.folder / "engine.sock")),
                    *("--journal", str(self.folder / "journal")),
                    *("--threads", "1", "--pool-tokens", "2048", "--weights", "float32"),
                    *options,
                ],
                stderr=log,
                cwd=Path(__file__).resolve().parents[3],
            )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[EngineClient]:
        """A connected client that keeps and acknowledges orphans."""

        async def settle(finishes: Sequence[Finish]) -> None:
            self.orphans.extend(finishes)
            client.ack([finish.request_id for finish in finishes])

        client = EngineClient(self.folder / "engine.sock", self.bundle.hash, settle)
        await client.start()
        try:
            await client.wait_connected(START_S)
            yield client
        finally:
            await client.close()
