"""What is named on the command line, as files that can be uploaded: found, cut and packed.

Sources are checked before anything is sent; then they are streamed through one temporary file at a
time, however many documents they have. Called by `uploading`.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from headrace.command_line import objects
from headrace.command_line.cutting import parts, records_of_csv, records_of_jsonl
from headrace.command_line.ending import CommandStopped
from headrace.command_line.packing import Entry, pack

TEXTS = frozenset({".txt", ".text", ".md", ".markdown", ".html", ".htm", ".xhtml", ".pdf"})
JSON_LINES = frozenset({".jsonl", ".ndjson"})
CSVS = frozenset({".csv", ".tsv"})
TABLES = JSON_LINES | CSVS | {".parquet", ".zip"}
KINDS = ", ".join(sorted(TABLES | TEXTS))
MANIFEST = ".manifest"
FILE_ID = "file-"
STANDARD_INPUT = "-"
PART_BYTES_MAX = 100 * 1024 * 1024
"""Of one upload; the API takes twice as much."""
PART_DOCUMENTS_MAX = 20_000
"""Of one ZIP file."""


@dataclass(frozen=True, slots=True)
class PartLimits:
    """How large one upload may be, and how many documents a packed one may have."""

    bytes_max: int = PART_BYTES_MAX
    documents_max: int = PART_DOCUMENTS_MAX


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to upload now: it may be gone when the next one is asked for."""

    filename: str
    path: Path


def is_file_id(source: str) -> bool:
    """Whether this names a file that was uploaded before."""
    return source.startswith(FILE_ID) and not Path(source).exists()


def check(sources: Sequence[str]) -> None:
    """Raises CommandStopped for a source that is missing or of no known kind."""
    for source in sources:
        if source == STANDARD_INPUT or source.startswith(objects.SCHEME) or is_file_id(source):
            continue
        path = Path(source)
        if not path.exists():
            raise CommandStopped(f"{source}: there is no such file")
        if not path.is_dir() and _suffix(source) not in TEXTS | TABLES | {MANIFEST}:
            raise CommandStopped(f"{source} is of no known kind: {KINDS}, {MANIFEST}")
        if _suffix(source) == MANIFEST:
            objects.check_manifest(path)


def uploads(sources: Sequence[str], stdin: BinaryIO, limits: PartLimits) -> Iterator[Upload]:
    """Each file to upload; the temporary one behind it lives until the next.

    Documents are named by their place below a single folder, or by their path where there are
    several sources.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-"))
        if any(_is_stored(source) for source in sources):
            stack.enter_context(objects.faults_told())
        workspace = _Workspace(Path(folder), limits)
        tables: list[Entry] = []
        yield from workspace.texts(_texts(sources, tables))
        if STANDARD_INPUT in sources:
            yield from workspace.cut("stdin.jsonl", stdin)
        for entry in tables:
            yield from workspace.table(entry)


def _texts(sources: Sequence[str], tables: list[Entry]) -> Iterator[Entry]:
    """The documents of all sources; what has rows is added to `tables`, for later."""
    for source in sources:
        if source == STANDARD_INPUT or is_file_id(source):
            continue
        for entry in _entries(source, several=len(sources) > 1):
            if _suffix(entry.name) in TABLES:
                tables.append(entry)
            elif _suffix(entry.name) in TEXTS:
                yield entry


def _entries(source: str, *, several: bool) -> Iterator[Entry]:
    path = Path(source)
    if source.startswith(objects.SCHEME):
        prefix = f"{source.removeprefix(objects.SCHEME).strip('/')}/" if several else ""
        for entry in objects.entries_of_prefix(source):
            yield Entry(prefix + entry.name, entry.size_bytes, entry.open)
    elif _suffix(source) == MANIFEST:
        yield from objects.entries_of_manifest(path)
    elif path.is_dir():
        yield from _walk(path, f"{_plain(path)}/" if several else "")
    else:
        yield _entry(path, _plain(path) if several else path.name)


def _walk(folder: Path, prefix: str) -> Iterator[Entry]:
    """Every file below, in the order of their names; hidden ones and links to folders are left."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield _entry(path, prefix + path.relative_to(folder).as_posix())


class _Workspace:
    """One temporary file, and how what was found becomes uploads through it."""

    def __init__(self, folder: Path, limits: PartLimits) -> None:
        self._path = folder / "part"
        self._limits = limits

    def table(self, entry: Entry) -> Iterator[Upload]:
        """The file itself, or its parts when it is too large for one upload."""
        name = PurePosixPath(entry.name).name
        if entry.size_bytes <= self._limits.bytes_max:
            yield Upload(name, entry.path or self._fetched(entry))
            return
        if _suffix(name) not in JSON_LINES | CSVS:
            raise CommandStopped(
                f"{entry.name} is larger than {self._limits.bytes_max} bytes, and only JSONL and"
                " CSV can be cut: write it as several files"
            )
        with entry.open() as stream:
            yield from self.cut(name, stream)

    def cut(self, filename: str, stream: BinaryIO) -> Iterator[Upload]:
        """The parts of what `stream` holds; one of them if it is small."""
        bytes_max, is_csv = self._limits.bytes_max, _suffix(filename) in CSVS
        records = (records_of_csv if is_csv else records_of_jsonl)(stream, bytes_max)
        paths = parts(records, bytes_max, lambda: self._path, with_header=is_csv)
        for number, path in enumerate(paths, start=1):
            yield Upload(_numbered(filename, number), path)

    def texts(self, entries: Iterator[Entry]) -> Iterator[Upload]:
        """Documents, packed."""
        limits = self._limits
        paths = pack(entries, limits.bytes_max, limits.documents_max, lambda: self._path)
        for number, path in enumerate(paths, start=1):
            yield Upload(_numbered("documents.zip", number), path)

    def _fetched(self, entry: Entry) -> Path:
        with entry.open() as source, self._path.open("wb") as file:
            shutil.copyfileobj(source, file)
        return self._path


def _is_stored(source: str) -> bool:
    return source.startswith(objects.SCHEME) or _suffix(source) == MANIFEST


def _entry(path: Path, name: str) -> Entry:
    return Entry(name, path.stat().st_size, lambda: path.open("rb"), path)


def _plain(path: Path) -> str:
    """As it was written, without what a ZIP file may not name."""
    return "/".join(part for part in path.parts if part not in ("..", path.anchor))


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _numbered(filename: str, number: int) -> str:
    path = PurePosixPath(filename)
    return f"{path.stem}-{number:05d}{path.suffix}"
