"""Packs documents, a file each, into ZIP files below the size and number that one upload may have.

Sizes are those before packing, which bounds what a part unpacks to as well. The same documents give
the same bytes, so that a part which was uploaded before is known again. Called by `inputs`.
"""

import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headrace.command_line.ending import CommandStopped

WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
"""The same for every document: when one was saved says nothing about it."""
MEMBER_BYTES = 200
"""What a ZIP file spends on a member beside its content and, twice, its name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to read, wherever it is; `path` where it is a file of this machine."""

    name: str
    size_bytes: int
    open: Callable[[], BinaryIO]
    path: Path | None = None


def pack(
    documents: Iterable[Entry], bytes_max: int, documents_max: int, new_file: Callable[[], Path]
) -> Iterator[Path]:
    """ZIP files that hold all documents under their names, in order.

    Raises CommandStopped for one that fits into no part.
    """
    waiting = iter(documents)
    entry = next(waiting, None)
    while entry is not None:
        path, size_bytes, count = new_file(), 0, 0
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            while entry is not None and count < documents_max:
                if _bytes_of(entry) > bytes_max:
                    raise CommandStopped(f"{entry.name} is larger than {bytes_max} bytes")
                if size_bytes + _bytes_of(entry) > bytes_max:
                    break
                _add(archive, entry)
                size_bytes += _bytes_of(entry)
                count += 1
                entry = next(waiting, None)
        yield path


def _add(archive: zipfile.ZipFile, entry: Entry) -> None:
    info = zipfile.ZipInfo(entry.name, WRITTEN_AT)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # so that the bytes do not depend on where they are packed
    info.external_attr = 0o600 << 16
    with entry.open() as source, archive.open(info, "w") as member:
        shutil.copyfileobj(source, member)


def _bytes_of(entry: Entry) -> int:
    """At most, packed: deflate makes what it cannot shrink a little longer."""
    return entry.size_bytes + entry.size_bytes // 3000 + 2 * len(entry.name.encode()) + MEMBER_BYTES
