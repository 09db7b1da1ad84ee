"""Text out of HTML and PDF, in a child process that lives as long as it behaves.

What strangers send is parsed where it can do no harm: without the house's environment, under limits
of memory, processor seconds and wall time. A document that breaks one fails alone; the child is
ended and the next document gets a new one. Ingestion opens one for each slice it reads.
"""

import json
import os
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from batch_jobs.summaries.children.documents import HEADER
from batch_jobs.summaries.children.limits import child_command, child_environment
from batch_jobs.summaries.sources.documents import DocumentUnreadable

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """What taking the text out of one document may take; `documents_max` a child's whole life."""

    memory_bytes_max: int
    cpu_s: int
    wall_s: float
    text_bytes_max: int
    pages_max: int
    documents_max: int


class ChildExtractor:
    """Implements `sources.documents.Extractor`; a context manager that ends its child."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self._limits = limits
        self._child: subprocess.Popen[bytes] | None = None
        self._documents = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def extract(self, kind: str, content: bytes) -> str:
        """The text of an `html` or `pdf` document; raises DocumentUnreadable."""
        if self._documents >= self._limits.documents_max:
            self._end()
        child = self._child or self._start()
        self._documents += 1
        deadline = time.monotonic() + self._limits.wall_s
        header = HEADER.pack(kind.encode(), len(content))
        try:
            code, answer = self._exchange(child, [header, content], deadline)
        except BaseException:
            self._end()
            raise
        if code != b"ok":
            raise DocumentUnreadable(
                code.decode("ascii", "replace"), answer.decode(errors="replace")
            )
        return answer.decode(errors="replace")

    def _start(self) -> subprocess.Popen[bytes]:
        limits = self._limits
        asked = json.dumps(
            {
                "memory_bytes_max": limits.memory_bytes_max,
                "cpu_s": limits.cpu_s,
                "text_bytes_max": limits.text_bytes_max,
                "pages_max": limits.pages_max,
            }
        )
        self._child = subprocess.Popen(  # noqa: S603 - our own program
            child_command("documents", asked),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            bufsize=0,
        )
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self._documents = 0
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()
            child.wait()

    def _exchange(
        self, child: subprocess.Popen[bytes], request: Sequence[bytes], deadline: float
    ) -> tuple[bytes, bytearray]:
        """Its answer; raises DocumentUnreadable when it dies, or is not done in time."""
        assert child.stdin is not None and child.stdout is not None
        to_child, from_child = child.stdin.fileno(), child.stdout.fileno()
        # Never joined: a document may be large, and is held once.
        rest, answer = deque(memoryview(part) for part in request), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(to_child, selectors.EVENT_WRITE)
            selector.register(from_child, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise DocumentUnreadable(
                        "extraction_timeout", f"not read in {self._limits.wall_s:g} s"
                    )
                for key, _ in ready:
                    if key.fd == from_child:
                        received = os.read(from_child, _READ_BYTES)
                        answer += received
                        if not received or len(answer) > HEADER.size + self._limits.text_bytes_max:
                            raise DocumentUnreadable(
                                "extraction_failed",
                                "reading it took more memory or processor time than is allowed",
                            )
                    else:
                        rest[0] = _write(to_child, rest[0])
                        if not rest[0]:
                            rest.popleft()
                        if not rest:
                            selector.unregister(to_child)
                if len(answer) >= HEADER.size:
                    code, size_bytes = HEADER.unpack_from(answer)
                    if len(answer) >= HEADER.size + size_bytes:
                        del answer[: HEADER.size]
                        return code.rstrip(b"\0"), answer


def _write(to_child: int, rest: memoryview) -> memoryview:
    try:
        return rest[os.write(to_child, rest[:_READ_BYTES]) :]
    except BrokenPipeError:
        return rest[:0]  # its end is seen where its answer is read
