"""The engine's on-disk journal of finishes that nobody has settled yet.

Append-only records, made durable in batches, replayed at start, compacted when acknowledgements
have emptied it. It must never lose a finish that `sync` returned for; an acknowledgement may get
lost in a crash, since finishes are repeated and settling twice changes nothing. Used by the
server's event loop; only `sync` runs in another thread.
"""

import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from inference.contracts import Finish
from inference.protocol import Ack, Finished
from inference.server.journal_records import is_cut_off, pack, split, unpack

logger = logging.getLogger(__name__)

FINISHES_MAX = 10_000
"""Unacknowledged finishes and running requests together; beyond it new work is refused."""
COMPACT_BYTES_MIN = 1024 * 1024
"""A journal is rewritten only past this size, and only if three quarters of it are dead."""
ASIDE_FILES_MAX = 8
"""Files of what could not be read; beyond it the oldest is removed."""


class JournalError(Exception):
    """The journal cannot be opened or written; the engine must not go on without it."""


class Journal:
    """The finishes without acknowledgement, on disk and in `unacknowledged` (by request id)."""

    def __init__(self, folder: Path, finishes_max: int = FINISHES_MAX) -> None:
        """Opens or creates the journal and replays it; raises JournalError."""
        self.finishes_max = finishes_max
        self.unacknowledged: dict[str, Finish] = {}
        self._sizes: dict[str, int] = {}
        self._path = folder / "finishes.journal"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"cannot open the journal in {folder}: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"the journal in {folder} belongs to a running engine") from error
        self._bytes = 0
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._replay()
        except OSError as error:
            raise JournalError(f"cannot open {self._path}: {error}") from error

    def record(self, finishes: Iterable[Finish]) -> None:
        """Appends finishes; a later record of the same request replaces an earlier one.

        They are durable once `sync` has returned.
        """
        for finish in finishes:
            record = pack(Finished([finish]))
            self._append(record)
            self.unacknowledged[finish.request_id] = finish
            self._sizes[finish.request_id] = len(record)

    def acknowledge(self, request_ids: Iterable[str]) -> list[str]:
        """Forgets settled finishes; returns those that were known."""
        known = [
            request_id
            for request_id in dict.fromkeys(request_ids)
            if self.unacknowledged.pop(request_id, None) is not None
        ]
        if known:
            for request_id in known:
                del self._sizes[request_id]
            self._append(pack(Ack(known)))
        return known

    def sync(self) -> None:
        """Makes everything recorded so far durable; blocks on the disk, raises JournalError."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise JournalError(f"cannot sync {self._path}: {error}") from error

    def compact_if_due(self) -> None:
        """Rewrites the file when most of it is dead; must not run beside `sync`."""
        live_bytes = sum(self._sizes.values())
        if self._bytes > COMPACT_BYTES_MIN and self._bytes > 4 * live_bytes:
            self._rewrite()

    def close(self) -> None:
        """Syncs and releases the journal."""
        self.sync()
        os.close(self._file)
        os.close(self._lock)

    def _append(self, record: bytes) -> None:
        try:
            written = os.write(self._file, record)
        except OSError as error:
            raise JournalError(f"cannot write {self._path}: {error}") from error
        if written != len(record):
            raise JournalError(f"short write to {self._path}: the disk is full")
        self._bytes += len(record)

    def _replay(self) -> None:
        """Applies every record that is whole. What is not is set aside and taken out of the file,
        so that it is met once."""
        content = self._path.read_bytes()
        damaged: list[bytes] = []
        is_record = True
        for offset, part, is_record in split(content):
            if is_record:
                self._apply(part, offset)
            else:
                damaged.append(part)
        self._bytes = len(content)
        if damaged:
            torn = not is_record and len(damaged) == 1 and is_cut_off(damaged[0])
            self._set_aside(damaged, torn=torn)
            self._rewrite()
        _sync_folder(self._path.parent)

    def _apply(self, part: bytes, offset: int) -> None:
        try:
            record = unpack(part)
        except msgspec.DecodeError as error:
            raise JournalError(
                f"{self._path} holds a record of another version at byte {offset}: {error}"
            ) from error
        if isinstance(record, Finished):
            for finish in record.finishes:
                self.unacknowledged[finish.request_id] = finish
                self._sizes[finish.request_id] = len(part)
        else:
            for request_id in record.request_ids:
                self.unacknowledged.pop(request_id, None)
                self._sizes.pop(request_id, None)

    def _set_aside(self, damaged: list[bytes], *, torn: bool) -> None:
        """Keeps what could not be read. `torn` is a last write that was cut off, which a crash may
        do: nobody was told that it was durable. Anything else may have been a finish."""
        aside = _next_aside(self._path.parent)
        aside.write_bytes(b"".join(damaged))
        size = sum(map(len, damaged))
        if torn:
            logger.warning("event=journal_torn bytes=%d kept_in=%s", size, aside)
        else:
            logger.error(
                "event=journal_damaged bytes=%d places=%d kept_in=%s: finishes may be lost",
                size,
                len(damaged),
                aside,
            )

    def _rewrite(self) -> None:
        fresh_path = self._path.with_name("finishes.fresh")
        fresh_path.unlink(missing_ok=True)
        try:
            fresh = os.open(
                fresh_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            records = {
                request_id: pack(Finished([finish]))
                for request_id, finish in self.unacknowledged.items()
            }
            content = memoryview(b"".join(records.values()))
            size = len(content)
            while content:
                content = content[os.write(fresh, content) :]
            os.fdatasync(fresh)
            fresh_path.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise JournalError(f"cannot compact {self._path}: {error}") from error
        os.close(self._file)
        self._file, self._bytes = fresh, size
        self._sizes = {request_id: len(record) for request_id, record in records.items()}


def _next_aside(folder: Path) -> Path:
    """A fresh name; makes room for it by removing the oldest."""
    suffixes = [path.suffix[1:] for path in folder.glob("finishes.torn.[0-9]*")]
    numbers = sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())
    for number in numbers[: max(0, len(numbers) - ASIDE_FILES_MAX + 1)]:
        (folder / f"finishes.torn.{number}").unlink(missing_ok=True)
    return folder / f"finishes.torn.{numbers[-1] + 1 if numbers else 1}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
