"""Uploads inputs, and remembers what was uploaded: a run that broke off goes on where it was.

What is remembered lies in the user's cache folder as digests and file ids, and is only believed
after the API has shown the file. Called by `main`.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.command_line.api import Api, Refused, Unreachable
from headrace.command_line.ending import CommandStopped
from headrace.command_line.inputs import PartLimits, Upload, is_file_id, uploads
from headrace.command_line.progress import Progress

PURPOSE = "user_data"
LIFE_S = 30 * 24 * 3600
"""How long the API keeps an input."""
REMEMBERED_S = LIFE_S - 2 * 24 * 3600
NOT_FOUND = 404
LINES_MAX = 10_000


def upload_all(
    api: Api, key: str, sources: Sequence[str], limits: PartLimits, progress: Progress
) -> list[str]:
    """The file ids of all sources. Raises CommandStopped; what was uploaded until then stays."""
    memory = _Memory(f"{api.root} {key}")
    file_ids = [source for source in sources if is_file_id(source)]
    for upload in uploads(sources, sys.stdin.buffer, limits):
        place = memory.place(upload)
        file_id = memory.file_id(place)
        if file_id is None or not _is_there(api, file_id, upload):
            progress.say(f"uploading {upload.filename}, {upload.path.stat().st_size:,} bytes")
            try:
                file_id = _upload(api, upload)
            except Unreachable as error:
                again = "run it again: what was uploaded is not sent twice"
                raise CommandStopped(f"{upload.filename}: {error}; {again}") from error
            memory.note(place, file_id)
        file_ids.append(file_id)
    return list(dict.fromkeys(file_ids))


def _upload(api: Api, upload: Upload) -> str:
    """A try that got no answer may have left a file behind; like all of these, it expires."""
    fields = {
        "purpose": PURPOSE,
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": str(LIFE_S),
    }
    with upload.path.open("rb") as stream:
        file_id: str = api.upload("/v1/files", fields, upload.filename, stream)["id"]
    return file_id


def _is_there(api: Api, file_id: str, upload: Upload) -> bool:
    try:
        found = api.get(f"/v1/files/{file_id}")
    except Refused as refusal:
        if refusal.status == NOT_FOUND:
            return False
        raise
    return bool(found["bytes"] == upload.path.stat().st_size)


class _Memory:
    """What this user uploaded to this API with this key, by name and content."""

    def __init__(self, salt: str) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._path = Path(cache) / "headrace" / "uploads"
        self._salt = salt.encode()
        self._known = dict(self._read())

    def place(self, upload: Upload) -> str:
        """A digest that tells nothing of the key or the content."""
        state = hashlib.sha256(self._salt + b"\0" + upload.filename.encode() + b"\0")
        with upload.path.open("rb") as stream:
            state.update(hashlib.file_digest(stream, "sha256").digest())
        return state.hexdigest()

    def file_id(self, place: str) -> str | None:
        """Of an upload of this place, if there was one lately."""
        return self._known.get(place)

    def note(self, place: str, file_id: str) -> None:
        """Remembers it; a cache that cannot be written is done without."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.open("a") as file:
                file.write(f"{int(time.time())} {place} {file_id}\n")
        except OSError:
            return

    def _read(self) -> Iterator[tuple[str, str]]:
        since = time.time() - REMEMBERED_S
        try:
            lines = self._path.read_text().splitlines()[-LINES_MAX:]
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            match line.split():
                case [noted_at, place, file_id] if noted_at.isdecimal() and int(noted_at) > since:
                    yield place, file_id
