"""The engine's on-disk journal of finishes that nobody has settled yet.

Append-only records, made durable in batches, replayed at start, compacted when acknowledgements
have emptied it. It must never lose a finish that `sync` returned for; an acknowledgement may get
lost in a crash, since finishes are repeated and settling twice changes nothing. Used by the
server's event loop; only `sync` runs in another thread.
"""

import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from inference.contracts import Finish
from inference.protocol import Ack, Finished

logger = logging.getLogger(__name__)

FINISHES_MAX = 10_000
"""Unacknowledged finishes and running requests together; beyond it new work is refused."""
COMPACT_BYTES_MIN = 1024 * 1024
"""A journal is rewritten only past this size, and only if three quarters of it are dead."""

_HEADER = struct.Struct(">II")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Finished | Ack] = msgspec.msgpack.Decoder(Finished | Ack)


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
        self._file, self._bytes = self._open_and_replay()

    def record(self, finishes: Iterable[Finish]) -> None:
        """Appends finishes; a later record of the same request replaces an earlier one.

        They are durable once `sync` has returned.
        """
        for finish in finishes:
            record = _pack(Finished([finish]))
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
            self._append(_pack(Ack(known)))
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

    def _open_and_replay(self) -> tuple[int, int]:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            content = self._path.read_bytes()
            valid_bytes = self._replay(content)
            if valid_bytes < len(content):
                self._set_aside(content[valid_bytes:])
                os.ftruncate(file, valid_bytes)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise JournalError(f"cannot open {self._path}: {error}") from error
        return file, valid_bytes

    def _replay(self, content: bytes) -> int:
        """Applies records up to the first that is torn; returns how many bytes were good."""
        offset = 0
        while offset + _HEADER.size <= len(content):
            length, checksum = _HEADER.unpack_from(content, offset)
            body = content[offset + _HEADER.size : offset + _HEADER.size + length]
            if len(body) < length or zlib.crc32(body) != checksum:
                break
            try:
                record = _decoder.decode(body)
            except msgspec.DecodeError as error:
                raise JournalError(
                    f"{self._path} holds a record of another version at byte {offset}: {error}"
                ) from error
            size = _HEADER.size + length
            if isinstance(record, Finished):
                for finish in record.finishes:
                    self.unacknowledged[finish.request_id] = finish
                    self._sizes[finish.request_id] = size
            else:
                for request_id in record.request_ids:
                    self.unacknowledged.pop(request_id, None)
                    self._sizes.pop(request_id, None)
            offset += size
        return offset

    def _set_aside(self, torn: bytes) -> None:
        """Keeps what could not be read: a torn last write is normal, anything longer is not."""
        aside = self._path.with_name("finishes.torn")
        aside.write_bytes(torn)
        logger.warning("event=journal_torn bytes=%d kept_in=%s", len(torn), aside)

    def _rewrite(self) -> None:
        fresh_path = self._path.with_name("finishes.fresh")
        fresh_path.unlink(missing_ok=True)
        try:
            fresh = os.open(
                fresh_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            records = {
                request_id: _pack(Finished([finish]))
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


def _pack(record: Finished | Ack) -> bytes:
    body = _encoder.encode(record)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
