"""Style sheets, scripts and fonts of our pages: what apps ship in `static/`, by WhiteNoise.

Nothing is collected or built. `{% static %}` marks a URL by its file's content, so that browsers
keep the answer for good and see a change at once; a compressed copy is made when a file is first
asked for. Only what an app ships is found. Named in settings and urls.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.exceptions import SuspiciousFileOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from whitenoise.compress import Compressor
from whitenoise.media_types import MediaTypes
from whitenoise.responders import StaticFile

FILES_MAX = 512
"""Files that one process remembers; those asked for longest ago are looked up again."""
KEPT_FOR_GOOD = "public, max-age=31536000, immutable"
ASKED_AGAIN = "no-cache"
"""By a bare name, or by the mark of other content: a newer page, or an older one, asks for that."""
VENDORED = "/vendor/"
"""Folders below it name a version, and what is in them never changes."""
MARK = "v"
MARK_DIGITS = 16

_media_types = MediaTypes()
_compressor = Compressor(quiet=True)


class MarkedStorage(StaticFilesStorage):
    """What `{% static %}` asks for URLs."""

    def url(self, name: str | None) -> str:
        """Raises ValueError for a file that no app ships."""
        assert name is not None
        try:
            found = _found(name)
        except FileNotFoundError as error:
            raise ValueError(f"no app ships static/{name}") from error
        url = super().url(name)
        return url if VENDORED in name else f"{url}?{MARK}={_mark_now(found)}"


@require_safe
def static_file(request: HttpRequest, path: str) -> HttpResponse:
    """One file, or the part asked for; raises Http404."""
    try:
        found = _found(path)
        mark = _mark_now(found)
    except (FileNotFoundError, ValueError, SuspiciousFileOperation) as error:
        raise Http404(path) from error
    is_kept = VENDORED in path or request.GET.get(MARK) == mark
    answer = _file(found, mark, is_kept).get_response(request.method, request.META)
    body = b""
    if answer.file is not None:
        with answer.file:  # whole: Django would take a stream apart on a thread, line by line
            body = answer.file.read()
    return HttpResponse(body, status=answer.status.value, headers=dict(answer.headers))


@lru_cache(FILES_MAX)
def _found(name: str) -> Path:
    """Raises FileNotFoundError, and what the finders raise for a path that leaves its folder."""
    found = finders.find(name)
    if not isinstance(found, str) or not Path(found).is_file():
        raise FileNotFoundError(name)
    return Path(found)


def _mark_now(file: Path) -> str:
    status = file.stat()
    return _mark(file, status.st_mtime_ns, status.st_size)


@lru_cache(FILES_MAX)
def _mark(file: Path, modified_at_ns: int, size_bytes: int) -> str:
    """Of the content; asked for again when the file has changed."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:MARK_DIGITS]


@lru_cache(FILES_MAX)
def _file(file: Path, mark: str, is_kept: bool) -> StaticFile:
    media_type = _media_types.get_type(file.name)
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    headers = [
        ("Content-Type", media_type + charset),
        ("Cache-Control", KEPT_FOR_GOOD if is_kept else ASKED_AGAIN),
        ("ETag", f'"{mark}"'),
    ]
    compressed = {"gzip": str(_compressed(file, mark))} if _is_compressible(file) else {}
    return StaticFile(str(file), headers, encodings=compressed)


def _is_compressible(file: Path) -> bool:
    return bool(_compressor.should_compress(file.name))


def _compressed(file: Path, mark: str) -> Path:
    """A copy in the data folder, which all processes share; whichever is first makes it."""
    copy = settings.STATIC_COPIES_FOLDER / f"{mark}.gz"
    if not copy.exists():
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        with NamedTemporaryFile(dir=copy.parent, delete=False) as draft:
            draft.write(_compressor.compress_gzip(file.read_bytes()))
        Path(draft.name).replace(copy)
    return copy
